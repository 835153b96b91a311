// Transformations, defaults, overrides: done by Grafana's own code, once it is told which properties there are.

import {
  DataFrame,
  FieldConfigOptionsRegistry,
  GrafanaTheme2,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

import { framesOf } from './frames';
import { PanelModel } from './picture';

export const TIME_ZONE = 'utc';

const STANDARD = [
  'displayName', 'unit', 'min', 'max', 'decimals', 'mappings', 'thresholds', 'color', 'noValue', 'links', 'description',
]; // prettier-ignore

// What Grafana's time series panel sets where a dashboard is silent.
const TIME_SERIES = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: 'none',
  spanNulls: false,
  showPoints: 'auto',
  pointSize: 5,
  stacking: { mode: 'none', group: 'A' },
  axisPlacement: 'auto',
  axisLabel: '',
  axisColorMode: 'text',
  axisBorderShow: false,
  scaleDistribution: { type: 'linear' },
  hideFrom: { tooltip: false, viz: false, legend: false },
  thresholdsStyle: { mode: 'off' },
  barAlignment: 0,
  barWidthFactor: 0.6,
};

const TABLE = { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, filterable: false };

const byId = new Map(Object.values(standardTransformers).map((each: any) => [each.id, each])); // some have two names

standardTransformersRegistry.setInit(() =>
  [...byId.values()].map((each) => ({
    id: each.id,
    name: each.name,
    transformation: () => Promise.resolve(each),
    editor: () => null,
    imageDark: '',
    imageLight: '',
  }))
);

export async function dataOf(panel: PanelModel, theme: GrafanaTheme2): Promise<DataFrame[]> {
  const frames = await lastValueFrom(transformDataFrame(panel.transformations, framesOf(panel.targets)));
  const fieldConfig = configOf(panel);
  const data = applyFieldOverrides({
    data: frames,
    fieldConfig,
    fieldConfigRegistry: registryOf(fieldConfig),
    replaceVariables: (text) => text,
    theme,
    timeZone: TIME_ZONE,
  });
  cacheFieldDisplayNames(data);
  return data;
}

export function configOf(panel: PanelModel): PanelModel['fieldConfig'] {
  const usual = panel.type === 'timeseries' ? TIME_SERIES : panel.type === 'table' ? TABLE : {};
  const { defaults, overrides } = panel.fieldConfig;
  return { defaults: { ...defaults, custom: { ...usual, ...defaults.custom } }, overrides: overrides ?? [] };
}

function registryOf(fieldConfig: PanelModel['fieldConfig']): FieldConfigOptionsRegistry {
  const overridden = fieldConfig.overrides.flatMap((each) => each.properties.map((property: any) => property.id as string));
  const custom = new Set(overridden.filter((id) => id.startsWith('custom.')).map((id) => id.slice('custom.'.length)));
  Object.keys(fieldConfig.defaults.custom ?? {}).forEach((name) => custom.add(name));
  const item = (id: string, path: string, isCustom: boolean): any => ({
    id,
    path,
    isCustom,
    name: path,
    process: (value: unknown) => value,
    shouldApply: () => true,
    override: () => null,
    editor: () => null,
  });
  return new FieldConfigOptionsRegistry(() => [
    ...STANDARD.map((id) => item(id, id, false)),
    ...[...custom].map((name) => item(`custom.${name}`, name, true)),
  ]);
}
