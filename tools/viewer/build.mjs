// Builds the viewer's page: npm ci && npm run build. What it writes is a part of the package.
import { build } from 'esbuild';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, '../../pnc_vol/viewer/static');

// The one place in h5web that says which tabs a dataset has; with another version of h5web it may look different.
const TABS = /(function (\w+)\(e, t, n\) \{\s*let r = t\.get\(e\);\s*if \(\w+\(r\)\) \{\s*let e = )(\w+\(r, n\));/u;

const tabsWithAxes = {
  name: 'tabs with axes',
  setup(building) {
    building.onLoad({ filter: /@h5web\/app\/dist\/index\.js$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      if (!TABS.test(source)) throw new Error('h5web says elsewhere which tabs a dataset has: see TABS in build.mjs');
      const changed = source.replace(TABS, '$1withAxes($3, r, (path) => $2(path, t, n));');
      return { contents: `import { withAxes } from ${JSON.stringify(join(here, 'with_axes.jsx'))};\n${changed}` };
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
  plugins: [tabsWithAxes],
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
