// The checklist of resources, the heat of the disks and the ways of claims, of
// a selected stretch. All pure.
import { NotSeen, type ClaimTable, type Heat, type HeatMap, type UseCheck } from '../recording.ts'
import type { Range } from './flame/tree.ts'
import { num } from './format.ts'

/** The window of the checklist that tells of a range: the shortest that was assessed and holds it, else the whole run. */
export function useWindow(checks: readonly UseCheck[], range: Range | null): string {
  if (!range) return ''
  const holding = checks.filter((c) => c.phase !== '' && c.from <= range[0] + 0.5 && c.to >= range[1] - 0.5)
  return holding.reduce<UseCheck | null>((best, c) => (best === null || c.to - c.from < best.to - best.from ? c : best), null)?.phase ?? ''
}

/** A threshold in words. */
export function limits(c: UseCheck): string {
  const parts = [c.watch > 0 ? `watch from ${num(c.watch)}` : '', c.bad > 0 ? `bad from ${num(c.bad)}` : ''].filter(Boolean)
  return parts.join(', ')
}

/** How far a value is towards what is bad, 0 to 1; null where nothing is. */
export function fullness(c: UseCheck): number | null {
  const bad = c.bad || c.watch
  return c.value === null || bad <= 0 ? null : Math.min(1, Math.max(0, c.value / bad))
}

export interface HeatCell { step: number; row: number; count: number }

export function heatCells(m: HeatMap): HeatCell[] {
  const out: HeatCell[] = []
  let at = 0
  for (let i = 0; i + 2 < m.cells.length; i += 3) {
    at += m.cells[i]!
    out.push({ step: at, row: m.cells[i + 1]!, count: m.cells[i + 2]! })
  }
  return out
}

/** What a map holds in a range: how many, and the latencies that half and 99 of 100 did not exceed, as ends of their rows in microseconds. */
export function heatSum(h: Heat, m: HeatMap, range: Range | null): { count: number; p50: number | null; p99: number | null } {
  const rows = new Array<number>(h.edges.length).fill(0)
  let count = 0
  for (const c of heatCells(m)) {
    const t = h.start + c.step * h.step
    if (range && (t + h.step <= range[0] || t >= range[1])) continue
    rows[c.row]! += c.count
    count += c.count
  }
  const end = (q: number): number | null => {
    if (count === 0) return null
    let sum = 0
    for (let i = 0; i < rows.length; i++) {
      sum += rows[i]!
      if (sum >= q * count) return h.edges[i + 1] ?? 2 * (h.edges[i] ?? 0.5)
    }
    return null
  }
  return { count, p50: end(0.5), p99: end(0.99) }
}

/** Microseconds as people read them. */
export function latency(us: number): string {
  if (us < 1000) return `${num(us)} µs`
  if (us < 1e6) return `${num(us / 1000)} ms`
  return `${num(us / 1e6)} s`
}

/** A claim's way, in seconds on the round's axis; null where it was not observed. */
export interface ClaimRow {
  name: string
  class: string
  created: number | null
  provisioned: number | null
  bound: number | null
  attached: number | null
  running: number | null
}

/** The claims that were on their way at some moment of the range. */
export function claimRows(t: ClaimTable, range: Range | null): ClaimRow[] {
  const at = (ms: number | undefined): number | null => (ms === undefined || ms === NotSeen ? null : ms / 1000)
  const rows = t.names.map((name, i): ClaimRow => ({
    name, class: t.class[i] ?? '', created: at(t.created[i]), provisioned: at(t.provisioned[i]), bound: at(t.bound[i]), attached: at(t.attached[i]), running: at(t.running[i]),
  }))
  if (!range) return rows
  const end = (c: ClaimRow) => (c.bound === null ? Infinity : Math.max(c.bound, c.attached ?? 0, c.running ?? 0))
  return rows.filter((c) => (c.created ?? Infinity) < range[1] && end(c) > range[0])
}
