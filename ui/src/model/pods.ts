// Pods and log lines of a selected stretch. All pure.
import { NotSeen, type LogRow, type PodTable } from '../recording.ts'
import type { Range } from './flame/tree.ts'

/** A pod's way, in seconds on the round's axis; null where it was not observed. */
export interface PodRow {
  name: string
  node: string
  asked: number | null
  created: number | null
  bound: number | null
  running: number | null
}

/** The pods that were on their way at some moment of the range, in the table's order: the longest way first. */
export function podRows(t: PodTable, range: Range | null): PodRow[] {
  const at = (ms: number | undefined): number | null => (ms === undefined || ms === NotSeen ? null : ms / 1000)
  const rows = t.names.map((name, i): PodRow => ({
    name, node: t.nodes[t.node[i]!] ?? '', asked: at(t.asked[i]), created: at(t.created[i]), bound: at(t.bound[i]), running: at(t.running[i]),
  }))
  if (!range) return rows
  return rows.filter((p) => (p.asked ?? p.created ?? Infinity) < range[1] && (p.running ?? Infinity) > range[0])
}

/** Log lines whose first and last moments enclose a moment of the range; those without a time are not left out. */
export const logRows = (rows: readonly LogRow[], range: Range | null): LogRow[] =>
  rows.filter((r) => !range || r.first === null || r.last === null || (r.first < range[1] && r.last >= range[0]))
