// The names of the dimensions of the dataset that is shown. h5web calls them D0, D1, and no attribute of a file changes
// that: the labels of axes are drawn beside the axes, and are the tooltips of the buttons.
import { createContext, useContext } from 'react';

const Names = createContext([]);

/** A function from the number of a dimension to what it is called. */
export function useNames() {
  const names = useContext(Names);
  return (number) => names[number] || `D${number}`;
}

export function withNames(Container, names) {
  return (props) => (
    <Names.Provider value={names}>
      <Container {...props} />
    </Names.Provider>
  );
}
