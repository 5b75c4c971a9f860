import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import type { Round } from '../recording.ts'
import { cpuChart, curveChart, extent, raceChart, rateChart, stack, table, union } from './chart.ts'
import { parsePage, unpack } from './decode.ts'
import { change, duration, firstSentence, moment, num, percent, splitFunction, value } from './format.ts'
import { common, functions, indicators, join, idle, waitPerPod, placeOf } from './story.ts'
import { matches } from '../test/golden.ts'

const round = (name: string, rate: number, seconds: number): Round => ({
  name, dose: false, change: [], prediction: '', outcome: '', took: '', verdict: '', assessed: true, valid: true, invalid: [],
  recording: {
    id: name, name, started: '2026-11-20T09:30:00Z', seconds, status: 'complete', endReason: '', kubernetes: 'v1.36.3', cluster: 'lab',
    profile: 'stock', settings: [], nodes: 1, simulated: true, pods: 4, load: 'Deployments', machine: [], components: [], phases: [], observers: [],
  },
  until: 'running', headline: [{ id: 'rate', label: 'rate', value: rate, unit: 'pods/s', n: 4, better: 'higher', note: '' }],
  findings: [], ruledOut: [], notAssessed: [],
  stages: [
    { name: 'controller', measured: true, why: '', waitSeconds: 40, share: 0.8, rateIn: null, rateOut: rate, perPod: 10 },
    { name: 'bind', measured: false, why: 'no metrics', waitSeconds: 0, share: 0, rateIn: null, rateOut: null, perPod: 99 },
  ],
  latencies: [],
  curves: { start: 0, step: 1, total: 4, submitted: [4, 4, 4], created: [0, 2, 4], scheduled: [0, 1, 4], running: [0, 1, 4] },
  rates: {
    start: 0, step: 1, created: [400, 0, 0], scheduled: [rate, rate, null], running: [0, rate, rate],
    bounds: [{ label: 'near', component: 'etcd', value: rate * 2 }, { label: 'far', component: 'machine', value: rate * 100 }],
  },
  cpu: {
    start: -1, step: 1, cores: 2,
    series: [
      { component: 'etcd', harness: false, seconds: 1, cores: [0.5, null, null] },
      { component: 'kubedyno', harness: true, seconds: 1, cores: [0.25, 0.25, null] },
    ],
  },
  tracks: { start: -1, step: 1, disk: [], requests: [], spikes: [], rhythms: [] },
  functions: [{ component: 'etcd', cpuSeconds: 1, seconds: 3, phase: 'load', rows: [{ name: 'a', self: 0.5, cum: 0.6, perMs: 1 }, { name: 'b', self: 0.2, cum: 0.9, perMs: null }] }],
  flames: { names: [], classes: [], class: [], notes: [], trees: [] },
  pods: { names: [], nodes: [], node: [], asked: [], created: [], bound: [], running: [], left: 0 }, logs: [], use: [], heat: { start: 0, step: 1, steps: 0, edges: [], maps: [] },
  claims: { names: [], class: [], created: [], provisioned: [], bound: [], attached: [], running: [], left: 0, steps: [] },
  harness: { measured: true, cpuSeconds: 1, perPodMs: 2, share: 0.2 }, leftOut: ['images'], warnings: [], gaps: [],
})

test('a run without pods is told by what the cluster costs', () => {
  const loaded = round('a', 20, 3)
  assert.equal(idle(loaded), false)
  assert.equal(idle({ ...loaded, curves: { ...loaded.curves, total: 0 } }), false, 'pods that nobody expected were seen')
  assert.equal(idle({ ...loaded, curves: { ...loaded.curves, total: 0 }, headline: [{ id: 'plane-cpu', label: 'Control plane', value: 7, unit: '% of a CPU', n: 0, better: 'lower', note: '' }] }), true)
})

test('a stack keeps what was not observed apart from zero', () => {
  assert.deepEqual(stack([[1, null, null], [2, 3, null]]), [[1, null, null], [3, 3, null]])
})

test('charts', () => {
  const r = round('Baseline', 20, 3)
  matches('charts', { curve: curveChart(r.curves), rate: rateChart(r.rates), cpu: cpuChart(r.cpu) })
})

test('a burst beyond the scale is said in words', () => {
  const c = rateChart(round('x', 20, 3).rates)
  assert.ok(extent(c).y[1] < 60)
  assert.deepEqual(c.notes, ['Created reaches 400/s, above the scale.', 'Far above, not drawn: far.'])
})

test('rounds share one axis', () => {
  const a = extent(curveChart(round('a', 20, 3).curves))
  assert.deepEqual(union([a, { x: [-5, 9], y: [0, 1] }]), { x: [-5, 9], y: [0, a.y[1]] })
})

test('the race ends each line where its run ended', () => {
  const long = round('long', 1, 3)
  long.curves = { ...long.curves, running: [0, 1, 2, 3, 4, 4, 4] }
  const c = raceChart([round('short', 20, 3), long])
  assert.equal(c.lines[0]!.values.at(-1), null)
  assert.equal(c.lines[1]!.values.at(-1), 4)
})

test('pods that never start are followed until they are scheduled', () => {
  const [a, b] = [round('a', 20, 3), round('b', 20, 3)].map((r) => ({ ...r, until: 'scheduled' as const, curves: { ...r.curves, scheduled: r.curves.running, running: r.curves.running.map(() => 0) } })) as [Round, Round]
  assert.equal(raceChart([a, b]).unit, 'pods scheduled')
  assert.ok(Math.max(...raceChart([a, b]).lines[0]!.values.map((v) => v ?? 0)) > 0)
  assert.equal(raceChart([a, round('c', 20, 3)]).unit, 'pods running')
})

test('a chart is also a table', () => {
  assert.deepEqual(table(cpuChart(round('a', 1, 1).cpu), 2), {
    head: ['seconds', 'etcd (cores)', 'kubedyno (cores)'],
    body: [['-1', '0.5', '0.25'], ['1', '–', '–']],
  })
})

test('rounds are joined by key; what is missing stays missing', () => {
  assert.deepEqual(join([['a', 'b'], ['b', 'c']], (s) => s), [
    { key: 'a', cells: ['a', undefined] }, { key: 'b', cells: ['b', 'b'] }, { key: 'c', cells: [undefined, 'c'] },
  ])
  assert.equal(indicators([round('a', 1, 1), round('b', 2, 1)])[0]!.cells.length, 2)
  assert.deepEqual(functions([round('a', 1, 1)], 'etcd', 'cum').map((r) => r.key), ['b', 'a'])
  assert.deepEqual(functions([round('a', 1, 1)], 'none', 'cum'), [])
})

test('stages that were not measured add nothing to the waiting', () => {
  assert.equal(waitPerPod(round('a', 1, 1).stages), 10)
})

test('what all rounds say is said once', () => {
  assert.deepEqual(common([['a', 'b'], ['b']]), { all: ['b'], only: [['a'], []] })
})

test('evidence has its place on the page', () => {
  assert.deepEqual([
    ['busy', 'profiles: kube-apiserver'], ['rate', 'requests: WATCH pods'], ['wait', 'rest_client_rate_limiter_duration_seconds_sum{component="kube-controller-manager"}'],
    ['config', 'kube-controller-manager --kube-api-qps'], ['busy', 'etcd_disk_wal_fsync_duration_seconds_sum{component="etcd"}'], ['busy', 'machine, pods'],
    ['rate', 'apiserver_watch_events_total{resource="pods"}'], ['pattern', 'logs'], ['rate', 'unheard of'],
  ].map(([kind, ref]) => placeOf(kind!, ref!)), ['flame', 'requests', 'waiting', 'conditions', 'disk', 'time', 'requests', 'logs', 'time'])
})

test('numbers', () => {
  assert.deepEqual([0, -0.00001, 0.00023, 0.0123, 0.9996, 1.5, 52.08, 166.4, 3000, NaN].map(num), ['0', '0', '0.0002', '0.0123', '1', '1.5', '52.1', '166', '3000', 'NaN'])
  assert.deepEqual([0, 0.012, 0.5].map(percent), ['0 %', '1.2 %', '50 %'])
  assert.deepEqual([7, 61, 150, 3700].map(duration), ['7 s', '1m01s', '2m30s', '1h01m'])
  assert.deepEqual([null, 0, 0.0002, -0.004, 0.02].map((x) => value(x, 's')), ['–', '0 s', '0.2 ms', '-4 ms', '0.02 s'])
  assert.equal(value(0.004, 'ms'), '0.004 ms')
  assert.equal(value(0.00079, 's/1000 pods'), '0.79 ms/1000 pods')
  assert.deepEqual([change(20, 52), change(150, 58), change(1, 1), change(null, 3), change(0, 3)], ['×2.6', '−61 %', '±0 %', '', ''])
  assert.equal(moment('2026-11-20T09:30:11.5Z'), '2026-11-20 09:30 UTC')
  assert.equal(moment('0001-01-01T00:00:00Z'), '')
})

test('a function is split after its import path', () => {
  assert.deepEqual(splitFunction('k8s.io/api/core/v1.(*Pod).Marshal'), ['k8s.io/api/core/', 'v1.(*Pod).Marshal'])
  assert.deepEqual(splitFunction('runtime.mallocgc'), ['', 'runtime.mallocgc'])
  assert.deepEqual(splitFunction('sync.(*Map[k8s.io/x/y.T]).Load'), ['', 'sync.(*Map[k8s.io/x/y.T]).Load'])
})

test('data is unpacked, and marks that reorder text are made visible', async () => {
  const json = JSON.stringify({ schema: 1, title: 'a\u202eb', rounds: [] })
  const packed = gzipSync(json).toString('base64')
  assert.equal(parsePage(await unpack(packed, 'gzip-base64')).title, 'a\ufffdb')
  assert.equal(await unpack(json, 'json'), json)
  // Also where they are written as escapes, and not where a backslash only looks like one.
  assert.equal(parsePage('{"schema":1,"title":"a\\u202Eb"}').title, 'a\ufffdb')
  assert.equal(parsePage('{"schema":1,"title":"a\\\\u202eb\\n"}').title, 'a\\u202eb\n')
  assert.throws(() => parsePage('{"schema":99}'), /schema/)
  await assert.rejects(unpack('', 'zip'), /unknown encoding/)
})

test('the first sentence of a verdict', () => {
  assert.deepEqual(firstSentence('kubectl runs every 5.0 s (v1.36.3): 17.8 % of a CPU. It costs 2 pods/s. And more.'), ['kubectl runs every 5.0 s (v1.36.3): 17.8 % of a CPU.', 'It costs 2 pods/s. And more.'])
  assert.deepEqual(firstSentence('Nothing held it back'), ['Nothing held it back', ''])
})
