// Grafana's components look for translations as they are loaded, so these come first.
import { initPluginTranslations } from '@grafana/i18n';

// Where fonts are; icons are in the page itself, as a file's page may not fetch.
window.__grafana_public_path__ = new URL('./', document.currentScript.src).href;

window.rankscope.drawn = initPluginTranslations('rankscope')
  .then(() => import('./page.jsx'))
  .then(({ draw }) => draw(window.rankscope));
