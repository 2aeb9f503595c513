// Line and heat map of a dataset with the axes that its file tells of.
//
// h5web draws a dataset over indices, and a NeXus group over the axes that the group names. The server gives such a
// group for each numeric dataset, at a path that no object has: here its tabs take the place of the dataset's own.

import { withNames } from './names.jsx';

const VIEWS = [
  ['Line', 'NX Line', '//line'],
  ['Heatmap', 'NX Heatmap', '//map'],
];
const found = new WeakMap();

/**
 * @param tabs what h5web shows of the dataset
 * @param dataset its description
 * @param resolve from a path to the tabs of the object there; throws a promise while the server is asked
 */
export function withAxes(tabs, dataset, resolve) {
  // The same objects each time: a tab that is another object is drawn anew.
  if (!found.has(dataset)) {
    const names = dataset.dimensions ?? [];
    const shown = replaced(tabs, dataset, resolve);
    found.set(dataset, names.length ? shown.map((tab) => ({ ...tab, Container: withNames(tab.Container, names) })) : shown);
  }
  return found.get(dataset);
}

function replaced(tabs, dataset, resolve) {
  if (!dataset.shape?.dims?.length) return tabs;
  const shown = tabs.map((tab) => {
    const [, name, prefix] = VIEWS.find(([own]) => own === tab.name) ?? [];
    return (name && tabOf(name, prefix + dataset.path, resolve, tab)) || tab;
  });
  const points = dataset.shape.dims.length === 1 && tabOf('NX Scatter', `//map${dataset.path}`, resolve);
  return points ? [...shown, { ...points, name: 'Scatter' }] : shown;
}

function tabOf(name, path, resolve, own = {}) {
  let group;
  try {
    group = resolve(path);
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
  const tab = group?.supportedVis.find((each) => each.name === name);
  const Container = tab?.Container;
  return tab && { ...tab, ...own, Container: (props) => <Container {...props} entity={group.entity} /> };
}
