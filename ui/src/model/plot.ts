// Scales of plots that are not over time. All pure.
import type { CarriedAt, Estimated, RestLayer, SweptRow } from '../recording.ts'
import { ticks } from './forest.ts'

/** A scale from the lowest to the highest value with room around them. */
export interface Scale {
  low: number
  high: number
  ticks: number[]
}

/** The scale that holds values; zero keeps it from the bottom up. */
export function scale(values: readonly (number | null | undefined)[], zero = false): Scale {
  const seen = values.filter((v): v is number => v !== null && v !== undefined && Number.isFinite(v))
  if (seen.length === 0) return { low: 0, high: 1, ticks: [0, 1] }
  const [a, b] = [Math.min(...seen), Math.max(...seen)]
  const room = (b - a || Math.abs(b) || 1) * 0.12
  const low = zero && a >= 0 ? 0 : a >= 0 ? Math.max(0, a - room) : a - room
  const high = zero && b <= 0 ? 0 : b + room
  return { low, high, ticks: ticks(low, high) }
}

/** Where a value stands on a scale, 0 to 1, held to it. */
export const stands = (s: Scale, v: number): number => Math.min(1, Math.max(0, (v - s.low) / (s.high - s.low || 1)))

/** All that a row of a sweep draws: its runs, medians and their intervals. */
export const sweptValues = (r: SweptRow): (number | null)[] =>
  r.cells.flatMap((c) => [...c.values, c.median.value, c.median.low, c.median.high])

/** The steps of a waterfall: each from where the layer below it ended, in cores above the machine alone. */
export function waterfall(layers: readonly RestLayer[]): { name: string; from: number; to: number; step: Estimated; wakeups: Estimated }[] {
  const ground = layers[0]?.cores.value ?? 0
  let below = 0
  return layers.slice(1).map((l) => {
    const from = below
    below = (l.cores.value ?? ground + below) - ground
    return { name: l.name, from, to: below, step: l.step, wakeups: l.wakeups }
  })
}

/** The tightest resources first, as many as are worth a line. */
export const tightest = (at: CarriedAt, most = 8): CarriedAt['demands'] => at.demands.filter((d) => d.bound.value !== null).slice(0, most)

/** Every how many names fit below a plot. */
export const every = (n: number, most: number): number => Math.max(1, Math.ceil(n / most))

/** A name that fits, its end cut off. */
export function short(name: string, most: number): string {
  const all = [...name]
  return all.length <= most ? name : `${all.slice(0, most - 1).join('')}…`
}

/** An interval in words: nothing where it is not known. */
export function between(e: { low: number | null; high: number | null }, say: (x: number) => string): string {
  if (e.low === null && e.high === null) return ''
  return `${e.low === null ? '…' : say(e.low)} to ${e.high === null ? '…' : say(e.high)}`
}
