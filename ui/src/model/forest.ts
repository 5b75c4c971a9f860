// Intervals of ratios and levels over runs, as they are drawn. All pure.
import type { SideRow, Trend } from '../recording.ts'
import { num } from './format.ts'

/** An axis of ratios: by factors, with 1 on it. */
export interface RatioAxis {
  low: number
  high: number
  ticks: number[]
}

const nice = [1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.67, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 4, 8, 16]

/** The axis that holds what rows show; what is further out is cut off at its ends. */
export function ratioAxis(rows: readonly SideRow[]): RatioAxis {
  const seen = rows.flatMap((r) => [r.ratio, r.ratioLow, r.ratioHigh]).filter((x): x is number => x !== null && x > 0)
  const low = Math.max(1 / 16, Math.min(0.9, ...seen) * 0.97)
  const high = Math.min(16, Math.max(1.1, ...seen) * 1.03)
  const inside = nice.filter((t) => t >= low && t <= high)
  const span = Math.log(high / low)
  // Ticks that would touch give way to those further from each other; 1 stays.
  const ticks: number[] = [1]
  for (const t of inside.toSorted((a, b) => Math.abs(Math.log(b)) - Math.abs(Math.log(a)))) {
    if (ticks.every((o) => Math.abs(Math.log(t / o)) / span > 0.13)) ticks.push(t)
  }
  return { low, high, ticks: ticks.sort((a, b) => a - b) }
}

/** Where a ratio stands on the axis, 0 to 1, held to it. */
export function place(a: RatioAxis, ratio: number): number {
  return Math.min(1, Math.max(0, Math.log(Math.max(ratio, 1e-9) / a.low) / Math.log(a.high / a.low)))
}

/** A row's result in words. */
export function result(r: SideRow): string {
  const between = (low: number | null, high: number | null, sign: (x: number) => string) =>
    (low === null && high === null ? '' : ` (${low === null ? '…' : sign(low)} to ${high === null ? '…' : sign(high)})`)
  if (r.ratio !== null) return `×${num(r.ratio)}${between(r.ratioLow, r.ratioHigh, (x) => `×${num(x)}`)}`
  if (r.difference !== null) return `${signed(r.difference)} ${r.unit}${between(r.low, r.high, signed)}`
  return '–'
}

export const signed = (x: number): string => (x < 0 ? `−${num(-x)}` : `+${num(x)}`)

/** What a row cannot show: how large an effect would have to be. */
export function blind(r: SideRow): string {
  if (r.verdict !== '~' || r.detectable === null) return ''
  const least = r.ratio !== null ? `${num(100 * r.detectable)} %` : `${num(r.detectable)} ${r.unit}`
  return `would show from ${least} on${r.needed !== null ? `; ${r.needed} runs a side find the wanted one` : ''}`
}

export const groups: readonly (readonly [string, string])[] = [
  ['user', 'What a user feels'], ['rate', 'How fast the cluster works'], ['stage', 'Where pods wait'], ['cpu', 'What the control plane costs'], ['harness', 'What the harness costs'],
]

/** Good, bad or neither: the class of a verdict. */
export const tone = (verdict: string): string => (verdict === 'better' ? 'good' : verdict === 'worse' ? 'bad' : '')

/** The levels of a trend: from which run to which, at what median. */
export function levels(t: Trend): { from: number; to: number; value: number }[] {
  const edges = [0, ...t.steps.map((s) => s.at), t.values.length]
  return edges.slice(1).map((to, i) => ({ from: edges[i]!, to, value: median(t.values.slice(edges[i]!, to)) })).filter((l) => l.to > l.from)
}

function median(values: readonly (number | null)[]): number {
  const s = values.filter((v): v is number => v !== null).sort((a, b) => a - b)
  if (s.length === 0) return NaN
  const m = s.length >> 1
  return s.length % 2 ? s[m]! : (s[m - 1]! + s[m]!) / 2
}

/** Round numbers across a range, some four of them. */
export function ticks(low: number, high: number): number[] {
  const raw = (high - low) / 4
  if (!(raw > 0)) return [low]
  const unit = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= raw)!
  const out: number[] = []
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v)
  return out
}
