// Rounds laid side by side. All pure.
import type { Func, Indicator, Latency, PageStage, Round } from '../recording.ts'

/** One row of a table with a cell per round. */
export interface Row<T> {
  key: string
  cells: (T | undefined)[]
}

/** Joins lists of things by key, in the order in which keys first appear. */
export function join<T>(lists: readonly (readonly T[])[], key: (t: T) => string): Row<T>[] {
  const rows = new Map<string, (T | undefined)[]>()
  lists.forEach((list, i) => {
    for (const t of list) {
      const k = key(t)
      if (!rows.has(k)) rows.set(k, new Array(lists.length).fill(undefined))
      rows.get(k)![i] ??= t
    }
  })
  return [...rows].map(([key, cells]) => ({ key, cells }))
}

export const indicators = (rounds: readonly Round[]): Row<Indicator>[] => join(rounds.map((r) => r.headline), (i) => i.id)
export const latencies = (rounds: readonly Round[]): Row<Latency>[] => join(rounds.map((r) => r.latencies), (l) => l.name)

/** Components with a CPU profile in any round, with the CPU seen in each. */
export function profiled(rounds: readonly Round[]): string[] {
  return join(rounds.map((r) => r.functions), (t) => t.component)
    .filter((r) => r.cells.some((c) => c && c.rows.length > 0))
    .map((r) => r.key)
}

export type By = 'self' | 'cum' | 'perMs'

/** A component's functions, the rounds joined, the heaviest in any round first. */
export function functions(rounds: readonly Round[], component: string, by: By): Row<Func>[] {
  const rows = join(rounds.map((r) => r.functions.find((t) => t.component === component)?.rows ?? []), (f) => f.name)
  const weight = (r: Row<Func>) => Math.max(...r.cells.map((c) => c?.[by] ?? -1))
  return rows.sort((a, b) => weight(b) - weight(a) || (a.key < b.key ? -1 : 1))
}

/** The scale of the waiting bars: the longest mean wait of any round. */
export const longestWait = (rounds: readonly Round[]): number => Math.max(0, ...rounds.map((r) => waitPerPod(r.stages)))

export const waitPerPod = (stages: readonly PageStage[]): number =>
  stages.reduce((s, st) => s + (st.measured ? st.perPod : 0), 0)

/** Statements that are the same in every round need saying once. */
export function common(lists: readonly (readonly string[])[]): { all: string[]; only: string[][] } {
  const all = [...new Set(lists[0] ?? [])].filter((s) => lists.every((l) => l.includes(s)))
  return { all, only: lists.map((l) => l.filter((s) => !all.includes(s))) }
}

const places: [RegExp, string][] = [
  [/^(profiles?|stacks|heap)\b/, 'flame'],
  [/^(pods|operations)\b/, 'pods'],
  [/^(logs?|events?)\b/, 'logs'],
  [/^stages?\b|^workqueue_|^scheduler_|rate_limiter/, 'waiting'],
  [/^(blockio|syncs)\b|^etcd_disk|fsync/, 'disk'],
  [/^(processes|machine|cores|disks|exits)\b|^process_|^go_/, 'time'],
  [/^requests?\b|^apiserver_|^etcd_requests|^rest_client|admission|webhook/, 'requests'],
]

/** The section of the page in which a reader can see what a piece of evidence is about. */
export function placeOf(kind: string, ref: string): string {
  if (kind === 'config' || ref.startsWith('--')) return 'conditions'
  return places.find(([at]) => at.test(ref))?.[1] ?? 'time'
}

/** The same for a main number. */
export const placeOfIndicator = (id: string): string =>
  id.startsWith('startup') || id === 'intent' ? 'pods' : id === 'cpu-per-pod' ? 'flame' : id.startsWith('harness-') ? 'conditions' : 'time'

/** Whether a run had no pods: what it shows is what the cluster costs by itself. */
export const idle = (r: Round): boolean => r.curves.total === 0 && !r.headline.some((i) => i.id === 'rate')
