// Grafana's components look for translations as they are loaded, so these come first.
import { initPluginTranslations } from '@grafana/i18n';

// Where fonts are; icons are in the page itself, as a file's page may not fetch.
window.__grafana_public_path__ = new URL('./', document.currentScript.src).href;

// Texts are measured as they are first drawn, with the font that is there by then.
const fonts = [[400, 'Regular'], [500, 'Medium']].map(([weight, name]) =>
  new FontFace('Inter', `url(${window.__grafana_public_path__}fonts/inter/Inter-${name}.woff2)`, { weight }).load()
);

window.rankscope.drawn = Promise.all([...fonts, initPluginTranslations('rankscope')])
  .then((loaded) => loaded.slice(0, fonts.length).forEach((font) => document.fonts.add(font)))
  .then(() => import('./page.jsx'))
  .then(({ draw }) => draw(window.rankscope));
