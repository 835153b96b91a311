// What the driver hands over: a dashboard whose queries have been answered already.

export interface Sample {
  metric: Record<string, string>;
  value?: [number, string];
  values?: Array<[number, string]>;
}

export interface Target {
  refId: string;
  format?: string;
  instant?: boolean;
  legendFormat?: string;
  step: number; // seconds
  result: Sample[];
}

export interface PanelModel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  options: any;
  fieldConfig: { defaults: any; overrides: any[] };
  transformations: any[];
  targets: Target[];
  folded?: boolean; // of a row
}

export interface Mark {
  time: number; // milliseconds
  timeEnd?: number;
  color: string;
}

export interface Picture {
  title: string;
  variables: Array<{ label: string; value: string }>;
  from: number; // milliseconds
  to: number;
  panels: PanelModel[];
  marks: Mark[];
}

// What could not be drawn, in words; the driver is told.
export const failures: string[] = [];
