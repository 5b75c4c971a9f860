// One round over time: what its charts draw beside pods and CPU, and what
// tables hold of a selected stretch. All pure.
import type { Curves, RequestGroup, Round, Tracks, Values } from '../recording.ts'
import { axis, type ChartData } from './chart.ts'
import { clientColour, events, otherClients, stageColour, type Colour } from './colour.ts'
import type { Range } from './flame/tree.ts'

/** The seconds that all charts of a round show. */
export function whole(r: Round): Range {
  const ends = (start: number, step: number, n: number): number => (n > 0 ? start + step * (n - 1) : start)
  const cpus = Math.max(0, ...r.cpu.series.map((s) => s.cores.length))
  return [
    Math.min(0, cpus > 0 ? r.cpu.start : 0),
    Math.max(1, ends(r.curves.start, r.curves.step, r.curves.running.length), ends(r.cpu.start, r.cpu.step, cpus)),
  ]
}

/** A selection as the reader meant it: in order, inside the axis, at least a tenth of a second. */
export function tidy([a, b]: Range, [lo, hi]: Range): Range | null {
  const from = Math.max(lo, Math.min(a, b))
  const to = Math.min(hi, Math.max(a, b))
  const round = (t: number) => Math.round(t * 10) / 10
  return round(to) - round(from) < 0.1 ? null : [round(from), round(to)]
}

const minus = (a: Values, b: Values): Values => a.map((v, i) => (v === null || (b[i] ?? null) === null ? null : Math.max(0, v - b[i]!)))

/** How many pods were waiting, and for what. */
export function waitingChart(c: Curves): ChartData {
  return {
    x: axis(c.start, c.step, c.running.length), stacked: true, unit: 'pods', marks: [],
    lines: [
      { label: 'to be started', colour: stageColour('start'), values: minus(c.scheduled, c.running) },
      { label: 'to be scheduled', colour: stageColour('decide'), values: minus(c.created, c.scheduled) },
      { label: 'to be created', colour: stageColour('controller'), values: minus(c.submitted, c.created) },
    ],
  }
}

const disk: Record<string, Colour> = { written: ['#d9730d', '#f0a544'], read: ['#2f6db5', '#5b9be0'] }

/** The disks, a chart for each unit. */
export function diskCharts(t: Tracks): ChartData[] {
  return [...new Set(t.disk.map((d) => d.unit))].map((unit) => ({
    x: axis(t.start, t.step, Math.max(...t.disk.map((d) => d.values.length))), stacked: false, unit, marks: [],
    lines: t.disk.filter((d) => d.unit === unit).map((d) => ({ label: d.name, colour: disk[d.name] ?? events.created, values: d.values })),
  }))
}

const shown = 7

/** When the round was recorded, as its phases tell; null where they do not. */
export function recorded(r: Round): Range | null {
  const p = r.recording.phases
  return p.length > 0 ? [Math.min(...p.map((x) => x.from)), Math.max(...p.map((x) => x.to))] : null
}

/** Requests a second by client, those with the most of them, and the rest. Outside of what was recorded there is nothing, not zero. */
export function requestChart(t: Tracks, n: number, when: Range | null = null): ChartData {
  const x = axis(t.start, t.step, n)
  const seen = (values: number[]): Values => values.map((v, i) => (when && (x[i]! + t.step <= when[0] || x[i]! >= when[1]) ? null : v))
  const by = new Map<string, number[]>()
  for (const g of t.requests) {
    const line = by.get(g.agent) ?? new Array<number>(n).fill(0)
    by.set(g.agent, line)
    eachCell(g, (at, count) => { if (at < n) line[at]! += count / t.step })
  }
  const all = [...by].map(([label, values]) => ({ label, values, sum: values.reduce((a, b) => a + b, 0) })).sort((a, b) => b.sum - a.sum || (a.label < b.label ? -1 : 1))
  const rest = all.slice(shown)
  const colours = clientColours(t)
  const lines = all.slice(0, shown).map(({ label, values }) => ({ label, colour: colours.get(label)!, values: seen(values) }))
  if (rest.length > 0) {
    lines.push({ label: `${rest.length} more`, colour: otherClients, values: seen(rest.reduce((sum, r) => sum.map((v, i) => v + r.values[i]!), new Array<number>(n).fill(0))) })
  }
  return { x, stacked: true, unit: 'requests/s', marks: [], lines }
}

/** A colour for each client, the same in all charts and tables: those with the most requests differ. */
export function clientColours(t: Tracks): Map<string, Colour> {
  const counts = new Map<string, number>()
  for (const g of t.requests) counts.set(g.agent, (counts.get(g.agent) ?? 0) + g.count)
  let n = 0
  return new Map([...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([agent]) => [agent, clientColour(agent, () => n++)]))
}

/** Visits the steps in which a group has requests: step, requests, seconds. */
function eachCell(g: RequestGroup, f: (step: number, count: number, seconds: number) => void): void {
  let at = 0
  for (let i = 0; i + 2 < g.cells.length; i += 3) {
    at += g.cells[i]!
    f(at, g.cells[i + 1]!, g.cells[i + 2]! / 1e4)
  }
}

export interface RequestRow {
  agent: string
  verb: string
  resource: string
  long: boolean
  count: number
  /** Of the whole time: errors are not kept by step. */
  errors: number
  seconds: number
  /** Which part of the time the server spent where, of the whole time; null: not told. */
  etcd: number | null
  auth: number | null
  queued: number | null
  webhooks: number | null
  /** Of answers, in the whole time. */
  bytes: number | null
}

/** Requests of the selected steps, or of all; those that took the most time first. */
export function requestRows(t: Tracks, range: Range | null): RequestRow[] {
  const rows = t.requests.map((g): RequestRow => {
    const { cells: _, ...whole } = g
    if (!range) return whole
    let count = 0
    let seconds = 0
    const [a, b] = steps(t, range)
    eachCell(g, (at, n, s) => {
      if (at < a || at >= b) return
      count += n
      seconds += s
    })
    return { ...whole, count, seconds }
  })
  return rows.filter((r) => r.count > 0).sort((a, b) => b.seconds - a.seconds || b.count - a.count)
}

/** Requests to the API server in a range, watches apart: those last. */
export function requestsIn(t: Tracks, range: Range): number {
  return requestRows(t, range).reduce((sum, r) => sum + (r.long ? 0 : r.count), 0)
}

/** The steps that a range covers, rounded to whole ones, one at least. */
function steps(t: Tracks, [from, to]: Range): [number, number] {
  const a = Math.max(0, Math.round((from - t.start) / t.step))
  return [a, Math.max(a + 1, Math.round((to - t.start) / t.step))]
}

/** The seconds that requestRows takes of a range. */
export function stepsOf(t: Tracks, range: Range): Range {
  const [a, b] = steps(t, range)
  return [t.start + a * t.step, t.start + b * t.step]
}

/** The mean of a line's observed values in a range; null where there are none. */
export function meanIn(x: readonly number[], values: Values, range: Range | null): number | null {
  let sum = 0
  let n = 0
  x.forEach((t, i) => {
    const v = values[i] ?? null
    if (v === null || (range && (t < range[0] || t >= range[1]))) return
    sum += v
    n++
  })
  return n > 0 ? sum / n : null
}

const waits: Record<string, number> = { start: 0, observe: 0, queue: 1, decide: 1, bind: 1, submit: 2, accept: 2, controller: 2 }

/** When pods waited most in a stage: from the first to the last moment with half of the most or more. Else the whole load. */
export function stageRange(r: Round, stage: string): Range {
  const c = waitingChart(r.curves)
  const all: Range = [Math.max(0, c.x[0] ?? 0), c.x.at(-1) ?? 1]
  const line = c.lines[waits[stage] ?? -1]
  if (!line) return all
  const most = Math.max(...line.values.map((v) => v ?? 0))
  if (!(most > 0)) return all
  const in_ = c.x.filter((_, i) => (line.values[i] ?? 0) >= most / 2)
  return tidy([in_[0]!, in_.at(-1)! + r.curves.step], all) ?? all
}
