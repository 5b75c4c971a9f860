// What lists of recordings and answers over them show. All pure, but for ask.
import type { AnswerLine, Entry, Summary, Values } from '../recording.ts'
import type { ChartData } from './chart.ts'
import { lineColour } from './colour.ts'
import { parse } from './decode.ts'

/** Asks our own server; what it refuses it says why. */
export async function ask<T>(path: string, parameters: readonly (readonly [string, string])[]): Promise<T> {
  const answer = await fetch(address(path, parameters), { credentials: 'same-origin' })
  const text = await answer.text()
  if (!answer.ok) throw new Error(text.trim() || answer.statusText)
  return parse<T>(text)
}

export function address(path: string, parameters: readonly (readonly [string, string])[]): string {
  return parameters.length > 0 ? `${path}?${new URLSearchParams(parameters.map(([k, v]) => [k, v])).toString()}` : path
}

export type Column = 'name' | 'started' | 'status' | 'seconds' | 'pods' | 'rate' | 'verdict'

export interface Wanted {
  /** Matches names, experiments, machines, settings and verdicts. */
  text: RegExp | null
  status: string
  by: Column
  down: boolean
}

/** The entries that are wanted, in order. What is not known yet comes last either way. */
export function listed(entries: readonly Entry[], summaries: ReadonlyMap<string, Summary>, w: Wanted): Entry[] {
  const of = (e: Entry) => summaries.get(key(e))
  const has = (e: Entry): boolean => {
    if (w.status && e.status !== w.status) return false
    if (!w.text) return true
    const s = of(e)
    return w.text.test([e.name, e.experiment, e.id, e.machine, e.kubernetes, e.status, ...e.settings, s?.verdict ?? ''].join(' '))
  }
  const value = (e: Entry): string | number | null => {
    switch (w.by) {
      case 'name': return e.name
      case 'started': return e.started
      case 'status': return e.status
      case 'seconds': return e.seconds
      case 'pods': return e.pods
      case 'rate': return of(e)?.rate ?? null
      case 'verdict': return of(e)?.verdict || null
    }
  }
  const sign = w.down ? -1 : 1
  return entries.filter(has).sort((a, b) => {
    const [x, y] = [value(a), value(b)]
    if (x === null || y === null) return x === y ? order(a.name, b.name) : x === null ? 1 : -1
    return sign * order(x, y) || order(a.name, b.name)
  })
}

const order = (a: string | number, b: string | number): number => (a < b ? -1 : a > b ? 1 : 0)

/** A recording as it is now: what was said of it before it changed is not of it. */
export const key = (e: Entry): string => `${e.name}@${e.stamp}`

/** Most lines that a chart can hold so that they are told apart. */
export const drawn = 12

/** Answers of several recordings on one axis, the first lines of them; their own steps may differ. */
export function answerChart(lines: readonly AnswerLine[], unit: string): ChartData | null {
  const shown = lines.filter((l) => l.values.some((v) => v !== null)).slice(0, drawn)
  if (shown.length === 0) return null
  const step = Math.min(...shown.map((l) => l.step))
  const from = Math.min(...shown.map((l) => l.start))
  const to = Math.max(...shown.map((l) => l.start + l.step * (l.values.length - 1)))
  const n = Math.min(2000, Math.floor((to - from) / step + 1e-6) + 1)
  const x = Array.from({ length: n }, (_, i) => Math.round((from + i * step) * 1000) / 1000)
  const several = new Set(shown.map((l) => l.of)).size > 1
  return {
    x, stacked: false, unit, marks: [],
    lines: shown.map((l, i) => ({
      label: label(l, several), colour: lineColour(i),
      values: x.map((t): number | null => l.values[Math.round((t - l.start) / l.step)] ?? null),
    })),
  }
}

export const label = (l: AnswerLine, several: boolean): string => (several ? `${l.of} ${l.series}` : l.series)

/** The last value that was seen, and the largest. */
export function lastAndMost(values: Values): [number | null, number | null] {
  const seen = values.filter((v): v is number => v !== null)
  return [seen.at(-1) ?? null, seen.length > 0 ? Math.max(...seen) : null]
}
