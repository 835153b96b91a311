// A row for each series, a box for each stretch of time in which its value stays the same.

import { Field, getFieldDisplayName } from '@grafana/data';
import { VizLegend, useTheme2 } from '@grafana/ui';

import { TimeAxis, textWidth, timeToX } from './axis';
import type { Props } from './panels';

const LEGEND = 28;
const AXIS = 24;
const PER_PAGE = 20; // more rows than this Grafana spreads over pages; the first is drawn

interface Box {
  from: number;
  to: number;
  text: string;
  color: string;
}

function boxes(times: number[], field: Field, step: number): Box[] {
  const found: Box[] = [];
  times.forEach((time, index) => {
    const value = field.values[index];
    if (value === null || value === undefined) {
      return;
    }
    const { text, color } = field.display!(value);
    const last = found[found.length - 1];
    if (last && last.text === text && time - last.to < step / 2) {
      last.to = time + step;
    } else {
      found.push({ from: time, to: time + step, text, color: color ?? '' });
    }
  });
  return found;
}

export function StateTimeline({ panel, data, timeRange, width, height }: Props) {
  const theme = useTheme2();
  const page = data.slice(0, panel.options.perPage ?? PER_PAGE);
  const rows = page.map((frame) => {
    const field = frame.fields.find((each) => each.type === 'number')!;
    const step = frame.fields[0].config.interval ?? 60_000;
    return { name: getFieldDisplayName(field, frame, data), boxes: boxes(frame.fields[0].values, field, step) };
  });
  const left = textWidth(rows.map((row) => row.name), width / 3);
  const plot = { left, top: 0, width: width - left - 8, height: height - AXIS - LEGEND };
  const place = timeToX(plot, timeRange);
  const end = plot.left + plot.width;
  const each = plot.height / rows.length;
  const thick = each * (panel.options.rowHeight ?? 0.9);
  const seen = new Map(rows.flatMap((row) => row.boxes.map((box) => [box.text, box.color] as const)));
  const known = panel.fieldConfig.defaults.mappings?.flatMap((mapping: any) => Object.values(mapping.options)) ?? [];
  const order = known.map((option: any) => option.text);
  const items = [...seen].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  return (
    <>
      <svg width={width} height={height - LEGEND} style={{ display: 'block' }}>
        <g fontSize={12} fill={theme.colors.text.primary} textAnchor="end" dominantBaseline="middle">
          {rows.map((row, index) => (
            <text key={row.name} x={left - 8} y={index * each + each / 2}>
              {row.name}
            </text>
          ))}
        </g>
        {rows.map((row, index) =>
          row.boxes.map((box) => (
            <rect
              key={`${row.name} ${box.from}`}
              x={place(box.from)}
              width={Math.max(1, Math.min(end, place(box.to)) - place(box.from))}
              y={index * each + (each - thick) / 2}
              height={thick}
              fill={box.color}
              fillOpacity={(panel.fieldConfig.defaults.custom?.fillOpacity ?? 70) / 100}
            />
          ))
        )}
        <TimeAxis plot={plot} timeRange={timeRange} />
      </svg>
      <div style={{ display: 'flex', justifyContent: 'space-between' }}>
        <VizLegend
          displayMode={'list' as any}
          placement="bottom"
          items={items.map(([label, color]) => ({ label, color, yAxis: 1 }))}
        />
        {page.length < data.length && (
          <span style={{ color: theme.colors.text.secondary, whiteSpace: 'nowrap' }}>
            1 – {page.length} of {data.length}
          </span>
        )}
      </div>
    </>
  );
}
