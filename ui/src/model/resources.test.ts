import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotSeen, type Heat, type UseCheck } from '../recording.ts'
import { claimRows, fullness, heatCells, heatSum, latency, useWindow } from './resources.ts'

const check = (phase: string, from: number, to: number, more: Partial<UseCheck> = {}): UseCheck => ({
  phase, from, to, resource: 'CPU', instance: '', component: 'machine', kind: 'utilisation', aspect: '', value: 0.5, unit: 'share', watch: 0.7, bad: 0.9,
  verdict: 'ok', detail: '', evidence: '', source: '', reason: '', ...more,
})

test('a selection is told by the shortest window that holds it', () => {
  const checks = [check('', -30, 100), check('load', 0, 60), check('idle', -20, 0)]
  assert.equal(useWindow(checks, null), '')
  assert.equal(useWindow(checks, [10, 20]), 'load')
  assert.equal(useWindow(checks, [50, 70]), '')
  assert.equal(fullness(check('', 0, 1, { value: 0.45 })), 0.5)
  assert.equal(fullness(check('', 0, 1, { value: null })), null)
  assert.equal(fullness(check('', 0, 1, { watch: 0, bad: 0 })), null)
})

test('the heat of a range counts its cells, and its percentiles are ends of rows', () => {
  const h: Heat = { start: -2, step: 1, steps: 10, edges: [0, 1, 2, 4, 8], maps: [] }
  const m = { process: 'etcd', kind: 'syncs', count: 101, cells: [0, 4, 1, 3, 1, 99, 0, 3, 1] }
  assert.deepEqual(heatCells(m), [{ step: 0, row: 4, count: 1 }, { step: 3, row: 1, count: 99 }, { step: 3, row: 3, count: 1 }])
  assert.deepEqual(heatSum(h, m, [1, 2]), { count: 100, p50: 2, p99: 2 })
  assert.deepEqual(heatSum(h, m, null), { count: 101, p50: 2, p99: 8 })
  assert.deepEqual(heatSum(h, m, [5, 6]), { count: 0, p50: null, p99: null })
  assert.deepEqual([latency(0.5), latency(1500), latency(2e6)], ['0.5 µs', '1.5 ms', '2 s'])
})

test('claims of a range are those on their way in it; one never bound always is', () => {
  const t = {
    names: ['n/a', 'n/b'], class: ['fast', ''], created: [0, 1000], provisioned: [500, NotSeen], bound: [600, NotSeen], attached: [NotSeen, NotSeen], running: [2000, NotSeen],
    left: 0, steps: [],
  }
  assert.deepEqual(claimRows(t, [3, 4]).map((c) => c.name), ['n/b'])
  assert.equal(claimRows(t, null)[0]!.attached, null)
  assert.equal(claimRows(t, [1.5, 1.6]).length, 2)
})
