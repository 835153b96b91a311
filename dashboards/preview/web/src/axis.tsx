// A time axis for the two panels that are drawn here, since @grafana/ui does not have them.

import { TimeRange, dateTimeFormat } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';

import { TIME_ZONE } from './fields';

const MINUTE = 60_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360].map((minutes) => minutes * MINUTE);
const APART = 80; // pixels

export interface Plot {
  left: number;
  top: number;
  width: number;
  height: number;
}

export function timeToX(plot: Plot, timeRange: TimeRange): (time: number) => number {
  const from = timeRange.from.valueOf();
  const to = timeRange.to.valueOf();
  return (time) => plot.left + (plot.width * (time - from)) / (to - from);
}

export function TimeAxis({ plot, timeRange }: { plot: Plot; timeRange: TimeRange }) {
  const theme = useTheme2();
  const place = timeToX(plot, timeRange);
  const from = timeRange.from.valueOf();
  const to = timeRange.to.valueOf();
  const step = STEPS.find((each) => (plot.width * each) / (to - from) > APART) ?? STEPS[STEPS.length - 1];
  const ticks: number[] = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    ticks.push(time);
  }
  return (
    <g fontSize={12} fill={theme.colors.text.primary} textAnchor="middle">
      {ticks.map((time) => (
        <text key={time} x={place(time)} y={plot.top + plot.height + 16}>
          {dateTimeFormat(time, { format: 'HH:mm', timeZone: TIME_ZONE })}
        </text>
      ))}
    </g>
  );
}

export function textWidth(texts: string[], most: number): number {
  return Math.min(most, Math.max(...texts.map((text) => text.length)) * 7 + 12);
}
