// Answers of Prometheus as the data frames that Grafana's Prometheus data source makes of them.

import { DataFrame, FieldType, createDataFrame } from '@grafana/data';

import { Sample, Target } from './picture';

export function framesOf(targets: Target[]): DataFrame[] {
  const tables = targets.filter((target) => target.format === 'table');
  const series = targets.filter((target) => target.format !== 'table');
  return [
    ...series.flatMap((target) => target.result.map((sample) => seriesFrame(target, sample))),
    ...(tables.some((target) => target.result.length) ? tables.map((target) => tableFrame(target, tables.length)) : []),
  ];
}

function points(sample: Sample): Array<[number, string]> {
  return sample.values ?? (sample.value ? [sample.value] : []);
}

function seriesFrame(target: Target, sample: Sample): DataFrame {
  const labels = { ...sample.metric };
  const rows = points(sample);
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: rows.map(([at]) => at * 1000), config: { interval: target.step * 1000 } },
      {
        name: 'Value',
        type: FieldType.number,
        values: rows.map(([, value]) => number(value)),
        labels,
        config: { displayNameFromDS: legend(target.legendFormat, labels) },
      },
    ],
  });
}

function tableFrame(target: Target, count: number): DataFrame {
  const names = [...new Set(target.result.flatMap((sample) => Object.keys(sample.metric)))].sort();
  const rows = target.result.flatMap((sample) => points(sample).map(([at, value]) => ({ at, value, metric: sample.metric })));
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: rows.map((row) => row.at * 1000), config: {} },
      ...names.map((name) => ({
        name,
        type: FieldType.string,
        values: rows.map((row) => row.metric[name] ?? ''),
        config: { filterable: true },
      })),
      {
        name: count > 1 ? `Value #${target.refId}` : 'Value',
        type: FieldType.number,
        values: rows.map((row) => number(row.value)),
        config: {},
      },
    ],
  });
}

function number(text: string): number {
  return text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text);
}

function legend(format: string | undefined, labels: Record<string, string>): string {
  if (format && format !== '__auto') {
    return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
  }
  const { __name__, ...rest } = labels;
  const text = Object.entries(rest).map(([name, value]) => `${name}="${value}"`);
  return text.length ? `${__name__ ?? ''}{${text.join(', ')}}` : (__name__ ?? 'Value');
}
