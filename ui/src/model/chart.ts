// What charts draw, computed from the model. All pure.
import type { Bound, CPU, CPUSeries, Curves, Rates, Round, Values } from '../recording.ts'
import { componentColour, events, roundColour, type Colour } from './colour.ts'
import { num } from './format.ts'

/** One line or area of a chart. */
export interface Line {
  label: string
  colour: Colour
  /** What a reader is told at the cursor: never the stacked sum. */
  values: Values
  dash?: boolean
  width?: number
}

export interface Mark {
  label: string
  value: number
  colour: Colour
}

/** A chart before it is drawn: lines over x, marks across them. */
export interface ChartData {
  x: number[]
  lines: Line[]
  stacked: boolean
  marks: Mark[]
  unit: string
  /** Counts that only grow: a mean over time says nothing. */
  cumulative?: boolean
  /** Lines may leave the scale above this; marks may not. */
  limit?: number
}

export const axis = (start: number, step: number, n: number): number[] =>
  Array.from({ length: n }, (_, i) => Math.round((start + i * step) * 1e6) / 1e6)

/** Sums lines from the bottom up. A step in which nothing was observed stays null. */
export function stack(lines: readonly Values[]): Values[] {
  const out: Values[] = []
  let below: Values = []
  for (const values of lines) {
    below = values.map((v, i) => {
      const b = below[i] ?? null
      return v === null && b === null ? null : (v ?? 0) + (b ?? 0)
    })
    out.push(below)
  }
  return out
}

export function curveChart(c: Curves): ChartData {
  const x = axis(c.start, c.step, c.running.length)
  return {
    x, stacked: false, unit: 'pods', marks: [], cumulative: true,
    lines: [
      { label: 'submitted', colour: events.submitted, values: c.submitted, dash: true },
      { label: 'created', colour: events.created, values: c.created },
      { label: 'scheduled', colour: events.scheduled, values: c.scheduled },
      { label: 'running', colour: events.running, values: c.running, width: 2 },
    ],
  }
}

/** Pods that began to run between two moments. */
export function reached(c: Curves, [from, to]: readonly [number, number]): number {
  const count = (t: number) => {
    const i = Math.min(c.running.length - 1, Math.floor((t - c.start) / c.step + 1e-9))
    return i < 0 ? 0 : (c.running[i] ?? 0)
  }
  return Math.max(0, count(to) - count(from))
}

/** A bound this far above all that was reached would only flatten the lines. */
const drawWithin = 2.5

const highest = (lines: readonly Values[]): number =>
  lines.reduce((m, l) => l.reduce<number>((n, v) => Math.max(n, v ?? 0), m), 0)

export function rateChart(r: Rates): ChartData & { notes: string[] } {
  // What gets through decides the scale. A controller that creates all pods in
  // the first seconds would otherwise flatten the rest; it is said in words.
  const top = highest([r.scheduled, r.running]) || highest([r.created])
  const burst = highest([r.created])
  const near = (b: Bound) => b.value <= top * drawWithin
  const beyond = r.bounds.filter((b) => !near(b))
  return {
    x: axis(r.start, r.step, r.running.length), stacked: false, unit: 'pods/s',
    lines: [
      { label: 'created', colour: events.created, values: r.created },
      { label: 'scheduled', colour: events.scheduled, values: r.scheduled },
      { label: 'running', colour: events.running, values: r.running, width: 2 },
    ],
    marks: r.bounds.filter(near).map((b) => ({ label: b.label, value: b.value, colour: componentColour(b.component) })),
    limit: top * 1.6,
    notes: [
      ...(burst > top * 1.6 ? [`Created reaches ${num(burst)}/s, above the scale.`] : []),
      ...(beyond.length ? [`Far above, not drawn: ${beyond.map((b) => b.label).join('; ')}.`] : []),
    ],
  }
}

export function cpuChart(c: CPU): ChartData {
  const n = Math.max(0, ...c.series.map((s) => s.cores.length))
  return {
    x: axis(c.start, c.step, n), stacked: true, unit: 'cores',
    lines: c.series.map((s: CPUSeries) => ({ label: s.component, colour: componentColour(s.component), values: s.cores })),
    marks: c.cores > 0 ? [{ label: `${c.cores} CPU${c.cores > 1 ? 's' : ''}`, value: c.cores, colour: ['#5f6974', '#a9b3bf'] }] : [],
  }
}

/** As far as the pods of all rounds are followed. */
export const until = (rounds: readonly Round[]): Round['until'] => (rounds.every((r) => r.until === 'scheduled') ? 'scheduled' : 'running')

/** Pods running over time, a line per round, on one axis; scheduled where none ever ran. */
export function raceChart(rounds: readonly Round[]): ChartData {
  const reached = until(rounds) === 'scheduled' ? (c: Curves) => c.scheduled : (c: Curves) => c.running
  const end = Math.max(1, ...rounds.map((r) => span(r)))
  const x = axis(0, end / 600, 601)
  return {
    x, stacked: false, unit: `pods ${until(rounds)}`, marks: [], cumulative: true,
    lines: rounds.map((r, i) => ({
      label: r.name, colour: roundColour(step(rounds, i)), width: r.dose ? 1.5 : 2.5, dash: r.dose,
      values: x.map((t) => at(r.curves, reached(r.curves), t)),
    })),
  }
}

/** The round's number in the story; a dose takes that of the round it speaks for. */
const step = (rounds: readonly Round[], i: number): number => rounds.slice(0, i).filter((r) => !r.dose).length

function at(c: Curves, pods: readonly (number | null)[], t: number): number | null {
  const i = Math.max(0, (t - c.start) / c.step)
  const below = pods[Math.floor(i)] ?? null
  const above = pods[Math.ceil(i)] ?? null
  if (below === null || above === null) return null // the run was over
  return below + (above - below) * (i - Math.floor(i))
}

/** Seconds until the round's last pod ran. */
export const span = (r: Round): number => r.curves.start + r.curves.step * Math.max(0, r.curves.running.length - 1)

export interface Extent {
  x: [number, number]
  y: [number, number]
}

/** The extent that shows a chart whole. */
export function extent(c: ChartData): Extent {
  const lines = c.lines.map((l) => l.values)
  const reached = Math.min(highest(c.stacked ? stack(lines) : lines), c.limit ?? Infinity)
  const top = Math.max(reached, ...c.marks.map((m) => m.value), 0)
  return { x: [Math.min(0, c.x[0] ?? 0), c.x.at(-1) ?? 1], y: [0, top > 0 ? top * 1.08 : 1] }
}

export function union(es: readonly Extent[]): Extent {
  return {
    x: [Math.min(...es.map((e) => e.x[0])), Math.max(...es.map((e) => e.x[1]))],
    y: [0, Math.max(...es.map((e) => e.y[1]))],
  }
}

/** A chart as a table of at most rows lines, for readers who cannot see it. */
export function table(c: ChartData, rows = 16): { head: string[]; body: string[][] } {
  const every = Math.max(1, Math.ceil(c.x.length / rows))
  const body: string[][] = []
  for (let i = 0; i < c.x.length; i += every) {
    body.push([num(c.x[i]!), ...c.lines.map((l) => {
      const v = l.values[i] ?? null
      return v === null ? '–' : num(v)
    })])
  }
  return { head: ['seconds', ...c.lines.map((l) => `${l.label} (${c.unit})`)], body }
}
