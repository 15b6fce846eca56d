// Bundles the page that draws a dashboard into build/, with Grafana's icons and font inside.
import { copyFileSync, mkdirSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const icons = join(here, 'node_modules/@grafana/ui/dist/public/img/icons');

function* files(folder) {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) yield* files(path);
    else yield path;
  }
}

// Components fetch icons from the server; there is none here, so they travel with the page.
const iconsInside = {
  name: 'icons',
  setup(builder) {
    builder.onResolve({ filter: /^virtual:icons$/ }, () => ({ path: 'icons', namespace: 'icons' }));
    builder.onLoad({ filter: /.*/, namespace: 'icons' }, () => ({
      contents: JSON.stringify(
        Object.fromEntries([...files(icons)].map((path) => [relative(icons, path), readFileSync(path, 'utf8')]))
      ),
      loader: 'json',
    }));
  },
};

await build({
  entryPoints: { page: join(here, 'page/start.js') },
  outdir: join(here, 'build'),
  bundle: true,
  minify: true,
  jsx: 'automatic',
  define: { 'process.env.NODE_ENV': '"production"' },
  loader: { '.woff2': 'dataurl', '.svg': 'dataurl', '.ttf': 'empty', '.wasm': 'empty' },
  plugins: [iconsInside],
  logLevel: 'warning',
});

// The font by which Grafana's texts are as wide as they are, where its style sheet looks for it.
const fonts = join(here, 'build/fonts/inter');
mkdirSync(fonts, { recursive: true });
for (const [weight, name] of [[400, 'Regular'], [500, 'Medium']]) {
  copyFileSync(join(here, `node_modules/@fontsource/inter/files/inter-latin-${weight}-normal.woff2`), join(fonts, `Inter-${name}.woff2`));
}
