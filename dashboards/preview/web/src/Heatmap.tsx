// A row for each series, a cell for each step, coloured by value.

import { getFieldDisplayName } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';
import * as schemes from 'd3-scale-chromatic';

import { TimeAxis, textWidth, timeToX } from './axis';
import type { Props } from './panels';

const AXIS = 24;
const LEGEND = 34;
const SHADES = 40;

export function Heatmap({ panel, data, timeRange, width, height }: Props) {
  const theme = useTheme2();
  const { color, cellGap } = panel.options;
  const scheme = (schemes as any)[`interpolate${color.scheme}`] as (share: number) => string;
  const fields = data.map((frame) => ({
    frame,
    field: frame.fields.find((each) => each.type === 'number')!,
    step: frame.fields[0].config.interval ?? 60_000,
  }));
  const all = fields.flatMap(({ field }) => field.values as number[]);
  const low = color.min ?? Math.min(...all);
  const high = color.max ?? Math.max(...all);
  const shade = (value: number) => {
    const share = Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
    return scheme(color.reverse ? 1 - share : share);
  };
  const names = fields.map(({ frame, field }) => getFieldDisplayName(field, frame, data));
  const left = textWidth(names, width / 3);
  const plot = { left, top: 0, width: width - left - 8, height: height - AXIS - LEGEND };
  const place = timeToX(plot, timeRange);
  const each = plot.height / fields.length;
  const top = (row: number) => plot.height - (row + 1) * each;
  const display = fields[0].field.display!;
  const shown = (value: number) => {
    const { text, suffix } = display(value);
    return text + (suffix ?? '');
  };
  return (
    <svg width={width} height={height} style={{ display: 'block' }}>
      <g fontSize={12} fill={theme.colors.text.primary} textAnchor="end" dominantBaseline="middle">
        {names.map((name, row) => (
          <text key={name} x={left - 8} y={top(row) + each / 2}>
            {name}
          </text>
        ))}
      </g>
      {fields.map(({ frame, field, step }, row) =>
        frame.fields[0].values.map((time: number, index: number) => {
          const start = Math.max(plot.left, place(time - step / 2));
          const wide = Math.min(plot.left + plot.width, place(time + step / 2)) - start;
          return (
            <rect
              key={`${row} ${time}`}
              x={start}
              y={top(row)}
              width={Math.max(0, wide - (cellGap ?? 1))}
              height={Math.max(1, each - (cellGap ?? 1))}
              fill={shade(field.values[index])}
            />
          );
        })
      )}
      <TimeAxis plot={plot} timeRange={timeRange} />
      <g transform={`translate(${left}, ${height - 24})`} fontSize={12} fill={theme.colors.text.primary}>
        {Array.from({ length: SHADES }, (_, index) => (
          <rect key={index} x={index * 5} width={5.5} height={8} fill={shade(low + ((high - low) * index) / (SHADES - 1))} />
        ))}
        <text y={22}>{shown(low)}</text>
        <text x={SHADES * 5} y={22} textAnchor="end">
          {shown(high)}
        </text>
      </g>
    </svg>
  );
}
