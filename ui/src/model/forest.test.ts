import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AnswerLine, Entry, SideRow, Spread, Summary, Trend } from '../recording.ts'
import { blind, levels, place, ratioAxis, result, ticks } from './forest.ts'
import { answerChart, key, lastAndMost, listed } from './served.ts'

const side: Spread = { value: 1, low: null, high: null, n: 3, values: [1, 1, 1], reason: '' }
const row = (x: Partial<SideRow>): SideRow => ({
  id: 'x', group: 'user', name: 'x', unit: 's', lower: true, neutral: false, baseline: side, candidate: side, ratio: null, ratioLow: null, ratioHigh: null,
  difference: null, low: null, high: null, p: null, verdict: '~', detectable: null, needed: null, ...x,
})

test('an axis of ratios holds 1 and all intervals, and ratios of the same factor are as far apart', () => {
  const a = ratioAxis([row({ ratio: 2, ratioLow: 1.5, ratioHigh: 2.5 }), row({ ratio: 0.5 })])
  assert.ok(a.low < 0.5 && a.high > 2.5 && a.ticks.includes(1))
  assert.ok(Math.abs(place(a, 2) - place(a, 1) - (place(a, 1) - place(a, 0.5))) < 1e-9)
  assert.equal(place(a, 100), 1)
  assert.equal(place(a, 0), 0)
  const far = ratioAxis([row({ ratio: 1000 })])
  assert.equal(far.high, 16)
})

test('a result says how sure it is', () => {
  assert.equal(result(row({ ratio: 1.25, ratioLow: 1.1, ratioHigh: null })), '×1.25 (×1.1 to …)')
  assert.equal(result(row({ difference: -3, low: -5, high: 0 })), '−3 s (−5 to +0)')
  assert.equal(result(row({})), '–')
  assert.equal(blind(row({ ratio: 1, detectable: 0.2, needed: 12 })), 'would show from 20 % on; 12 runs a side find the wanted one')
  assert.equal(blind(row({ ratio: 1, detectable: 0.2, verdict: 'better' })), '')
})

test('levels of a trend are the medians between its steps', () => {
  const t = { values: [1, 2, 3, 10, 11, 12, 13], steps: [{ at: 3 }] } as unknown as Trend
  assert.deepEqual(levels(t), [{ from: 0, to: 3, value: 2 }, { from: 3, to: 7, value: 11.5 }])
  assert.deepEqual(ticks(0, 100), [0, 50, 100])
  assert.deepEqual(ticks(5, 5), [5])
})

const entry = (name: string, started: string, more: Partial<Entry> = {}): Entry => ({
  name, id: name, experiment: 'density', started, seconds: 10, status: 'complete', pods: 5, nodes: 1, machine: '', kubernetes: '', settings: [], invalid: [], damaged: '', stamp: '1', ...more,
})

test('a list is filtered by what its rows say, and what is not known comes last', () => {
  const all = [entry('a', '2026-01-03'), entry('b', '2026-01-01', { settings: ['etcd.cpu=1'] }), entry('c', '2026-01-02', { status: 'running' })]
  const said = new Map<string, Summary>([[key(all[1]!), { name: 'b', verdict: 'the scheduler', valid: true, found: true, rate: 7, reached: 5, until: 'running', error: '' }]])
  const names = (w: Parameters<typeof listed>[2]) => listed(all, said, w).map((e) => e.name).join('')
  assert.equal(names({ text: null, status: '', by: 'started', down: true }), 'acb')
  assert.equal(names({ text: null, status: '', by: 'rate', down: true }), 'bac')
  assert.equal(names({ text: null, status: '', by: 'rate', down: false }), 'bac')
  assert.equal(names({ text: /scheduler/, status: '', by: 'name', down: false }), 'b')
  assert.equal(names({ text: /etcd\.cpu/, status: '', by: 'name', down: false }), 'b')
  assert.equal(names({ text: null, status: 'running', by: 'name', down: false }), 'c')
})

test('answers of recordings with other steps lie on one axis', () => {
  const line = (of: string, start: number, step: number, values: (number | null)[]): AnswerLine => ({ of, series: 's', start, step, values, note: '' })
  const c = answerChart([line('a', 0, 1, [1, 2, 3]), line('b', -2, 2, [5, null, 7])], '')!
  assert.deepEqual(c.x, [-2, -1, 0, 1, 2])
  assert.deepEqual(c.lines[0]!.values, [null, null, 1, 2, 3])
  assert.equal(c.lines[1]!.values[4], 7)
  assert.equal(c.lines[1]!.label, 'b s')
  assert.equal(answerChart([line('a', 0, 1, [null])], ''), null)
  assert.deepEqual(lastAndMost([1, 9, 4, null]), [4, 9])
})
