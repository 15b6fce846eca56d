// Grafana's own transformations and field overrides, with the registries that its server fills.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  FieldConfigOptionsRegistry,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  transformDataFrame,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

const processors = {
  unit: unitOverrideProcessor,
  decimals: numberOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  noValue: identityOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  color: identityOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  links: dataLinksOverrideProcessor,
};

// Settings that panels' plugins define in Grafana's application.
const custom = [
  'align', 'axisSoftMax', 'cellOptions', 'drawStyle', 'fillOpacity', 'hideFrom', 'inspect', 'lineStyle', 'lineWidth', 'minWidth',
  'scaleDistribution', 'showPoints', 'spanNulls', 'stacking', 'thresholdsStyle', 'width', 'wrapText',
];

const setting = (id, path, process, isCustom) => ({
  id,
  path,
  name: id,
  process,
  isCustom,
  shouldApply: () => true,
  getItemsCount: () => 0,
  editor: () => null,
  override: () => null,
});

const registry = new FieldConfigOptionsRegistry(() => [
  ...Object.entries(processors).map(([id, process]) => setting(id, id, process, false)),
  ...custom.map((name) => setting(`custom.${name}`, name, identityOverrideProcessor, true)),
]);

// The package lists one transformation under two names.
const transformers = [...new Map(Object.values(standardTransformers).map((one) => [one.id, one])).values()];
standardTransformersRegistry.setInit(() =>
  transformers.map((one) => ({
    id: one.id,
    name: one.name,
    transformation: () => Promise.resolve(one),
    editor: () => null,
  }))
);

function settings({ defaults, overrides }) {
  const { custom: own, ...rest } = defaults;
  const changed = overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  return [...Object.keys(rest), ...Object.keys(own).map((name) => `custom.${name}`), ...changed];
}

export async function prepared(panel, frames, theme, timeZone) {
  const unknown = panel.transformations.filter(({ id }) => !standardTransformersRegistry.getIfExists(id));
  if (unknown.length) throw new Error(`unknown transformations ${unknown.map(({ id }) => id)}`);
  const strange = settings(panel.fieldConfig).filter((id) => !registry.getIfExists(id));
  if (strange.length) throw new Error(`settings that this page does not know: ${strange}`);
  const changed = frames.length
    ? await firstValueFrom(transformDataFrame(panel.transformations, frames, { interpolate: (text) => text }))
    : [];
  const fields = applyFieldOverrides({
    data: changed,
    fieldConfig: panel.fieldConfig,
    fieldConfigRegistry: registry,
    replaceVariables: (text) => text,
    theme,
    timeZone,
  });
  cacheFieldDisplayNames(fields);
  return fields;
}
