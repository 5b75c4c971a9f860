import { test } from 'node:test'
import { deepEqual, equal, ok } from 'node:assert/strict'
import { between, every, scale, short, stands, tightest, waterfall } from './plot.ts'
import { num } from './format.ts'

const e = (value: number | null) => ({ value, low: null, high: null, n: 3 })

test('a scale holds its values, and what is not there leaves no mark', () => {
  const s = scale([3, null, 5, undefined, NaN])
  ok(s.low < 3 && s.high > 5 && s.ticks.every((t) => t >= s.low && t <= s.high), JSON.stringify(s))
  equal(scale([3, 5], true).low, 0)
  ok(scale([-2, 4]).low < -2)
  equal(scale([0.2, 5]).low, 0)
  deepEqual(scale([null]), { low: 0, high: 1, ticks: [0, 1] })
  const flat = scale([7, 7])
  ok(flat.low < 7 && flat.high > 7)
  equal(stands(s, -100), 0)
  equal(stands(s, 1e9), 1)
  equal(stands({ low: 2, high: 4, ticks: [] }, 3), 0.5)
})

test('a waterfall climbs from the machine alone, and a layer that saves goes down', () => {
  const layer = (name: string, cores: number | null, step: number) => ({ name, cores: e(cores), step: e(step), wakeups: e(null) })
  const steps = waterfall([layer('without', 0.02, 0), layer('etcd', 0.03, 0.01), layer('apiserver', 0.07, 0.04), layer('less', 0.05, -0.02)])
  deepEqual(steps.map((s) => [s.name, num(s.from), num(s.to)]), [['etcd', '0', '0.01'], ['apiserver', '0.01', '0.05'], ['less', '0.05', '0.03']])
  deepEqual(waterfall([]), [])
  const unknown = waterfall([layer('without', 0.02, 0), layer('etcd', null, 0)])
  equal(unknown[0]!.to, 0, 'what is not known adds nothing')
})

test('only resources with a bound are told, the first ones', () => {
  const d = (name: string, bound: number | null) => ({ name, unit: 's/pod', each: e(1), bound: e(bound) })
  const at = { cores: 0, verdict: '', capacity: e(1), beyond: 0, sure: true, binds: '', probes: [], demands: [d('a', 3), d('b', null), d('c', 9), d('d', 12)] }
  deepEqual(tightest(at, 2).map((x) => x.name), ['a', 'c'])
})

test('names are cut by characters, and intervals may be open', () => {
  equal(short('längere', 4), 'län…')
  equal(short('𝒳𝒳', 2), '𝒳𝒳')
  equal(every(30, 8), 4)
  equal(between({ low: null, high: 2 }, num), '… to 2')
  equal(between({ low: null, high: null }, num), '')
})
