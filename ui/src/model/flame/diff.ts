// What differs between two sides of a tree. All pure.
import type { Tree } from './tree.ts'

/** By what two sides are compared: their part of the whole, CPU-seconds, CPU per pod or per request. */
export type By = 'share' | 'absolute' | 'pod' | 'request'

/** What a weight of 1 is on each side, in the measure that is compared. */
export type Scale = readonly [number, number]

export interface SideFacts { unit: number; pods: number; requests: number; total: number }

/** Null where it cannot be said: no pod ran, or there is nothing to take a part of. */
export function scale(by: By, a: SideFacts, b: SideFacts): Scale | null {
  const of = (s: SideFacts): number =>
    by === 'share' ? 1 / s.total : by === 'absolute' ? s.unit : s.unit / (by === 'pod' ? s.pods : s.requests)
  const out: Scale = [of(a), of(b)]
  return out.every(Number.isFinite) ? out : null
}

/** Standard deviations of the samples' own chance below which a difference is called none: of some hundred frames one passes by chance. */
export const noise = 3

/** How two weights differ: 0 where the samples' chance can be the reason, -1 vanished, 1 new, between them less or more. */
export function change(a: number, b: number, [ka, kb]: Scale): number {
  const x = a * ka
  const y = b * kb
  if (x === y) return 0
  // Counts of samples vary like their own number.
  const z = Math.abs(y - x) / Math.sqrt(a * ka * ka + b * kb * kb)
  return z < noise ? 0 : (y - x) / (x + y)
}

/** Whose weights widths are drawn by. Of both, what vanished and what is new keeps a width. */
export type Width = 'both' | 'before' | 'after'

/** The weight by which a frame is drawn. Sums hold: callees never outgrow their caller. */
export function drawnWeight(t: Tree, width: Width, s: Scale | null): Float64Array {
  const [a, b] = t.total
  if (!b || width === 'before') return a!
  if (width === 'after') return b
  const [ka, kb] = s ?? [1, 1]
  return a!.map((x, i) => x * ka + b[i]! * kb)
}
