// Builds the viewer's page: npm ci && npm run build. What it writes is a part of the package.
import { build } from 'esbuild';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, '../../pnc_vol/viewer/static');

// Places in h5web that are changed; with another version of h5web they may look different.
//
// The one that says which tabs a dataset has.
const TABS = /(function (\w+)\(e, t, n\) \{\s*let r = t\.get\(e\);\s*if \(\w+\(r\)\) \{\s*let e = )(\w+\(r, n\));/u;

// Where h5web makes a dataset of what the server says of one: it keeps no names of dimensions.
const DATASET = /(filters: \w+ \} = (\w+);\s*return \{\s*\.\.\.\w+,)/u;
// The buttons and the sliders of the dimensions, which h5web calls D0, D1, whatever the file says.
const BUTTONS = /(let \{ axis: \w+, dimHints: \w+, dimMapping: \w+, onChange: \w+ \} = e)(,[^]*?label: )`D\$\{(\w+)\}`/u;
const SLIDERS = /(let \{ dimension: (\w+), length: \w+, initialValue: \w+, [^}]*\} = e;)([^]*?children: )\["D", \w+\]/u;

function replacedIn(source, pattern, by) {
  if (!pattern.test(source)) throw new Error(`h5web has this elsewhere, or in another form; see build.mjs: ${pattern}`);
  return source.replace(pattern, by);
}

function importing(name, file, source) {
  return { contents: `import { ${name} } from ${JSON.stringify(join(here, file))};\n${source}` };
}

const namesOfFiles = {
  name: 'tabs with axes, dimensions with names',
  setup(building) {
    building.onLoad({ filter: /@h5web\/app\/dist\/index\.js$/ }, async ({ path }) => {
      let source = await readFile(path, 'utf8');
      source = replacedIn(source, TABS, '$1withAxes($3, r, (path) => $2(path, t, n));');
      source = replacedIn(source, DATASET, '$1 ...$2.dimensions && { dimensions: $2.dimensions },');
      return importing('withAxes', 'with_axes.jsx', source);
    });
    building.onLoad({ filter: /@h5web\/lib\/dist\/index\.js$/ }, async ({ path }) => {
      let source = await readFile(path, 'utf8');
      source = replacedIn(source, BUTTONS, '$1, nameOf = useNames()$2nameOf($3)');
      source = replacedIn(source, SLIDERS, '$1 let nameOf = useNames();$3nameOf($2)');
      return importing('useNames', 'names.jsx', source);
    });
  },
};

const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: { app: 'app.jsx' },
  outdir: target,
  bundle: true,
  minify: true,
  metafile: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  legalComments: 'none',
  loader: { '.svg': 'dataurl', '.woff2': 'dataurl' },
  define: { 'process.env.NODE_ENV': '"production"' },
  plugins: [namesOfFiles],
});

// ------------------------------------------------------------------------------------------------------- licences

const folders = new Set();
for (const path of Object.keys(metafile.inputs)) {
  const [folder] = /^.*node_modules\/(?:@[^/]+\/)?[^/]+/u.exec(path) ?? [];
  if (folder) folders.add(join(here, folder));
}
const parts = [];
for (const folder of folders) {
  const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/iu.test(each));
  const text = file ? await readFile(join(folder, file), 'utf8') : `License: ${license} (the package has no text of it)`;
  parts.push([`${name} ${version} (${license})`, text.replaceAll('\r', '').trim()]);
}
parts.sort(([one], [other]) => (one < other ? -1 : 1));
const line = '-'.repeat(80);
const told = [...new Map(parts)].map(([name, text]) => `${line}\n${name}\n${line}\n\n${text}\n`);
await writeFile(join(target, 'LICENSES.txt'), `app.js and app.css contain these packages.\n\n${told.join('\n')}`);
