import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotSeen, type Curves, type LogRow, type Round, type Tracks } from '../recording.ts'
import { logRows, podRows } from './pods.ts'
import { reached } from './chart.ts'
import { diskCharts, meanIn, requestChart, requestRows, stageRange, stepsOf, tidy, waitingChart } from './timeline.ts'

const curves: Curves = { start: 0, step: 1, total: 8, submitted: [8, 8, 8, 8, 8], created: [0, 4, 6, 8, 8], scheduled: [0, 4, 5, 8, 8], running: [0, 2, 5, 7, null] }
const tracks: Tracks = {
  start: -1, step: 1, spikes: [], rhythms: [],
  disk: [{ name: 'written', unit: 'MB/s', values: [1, 3, null] }, { name: 'busiest disk busy', unit: '%', values: [1, 2, 3] }],
  requests: [
    { agent: 'a', verb: 'create', resource: 'pods', long: false, count: 6, errors: 1, seconds: 0.6, etcd: null, auth: null, queued: 0, webhooks: 0.5, bytes: 600, cells: [0, 1, 1000, 2, 5, 5000] },
    { agent: 'a', verb: 'watch', resource: 'pods', long: true, count: 1, errors: 0, seconds: 0, etcd: null, auth: null, queued: null, webhooks: null, bytes: null, cells: [1, 1, 0] },
    { agent: 'b', verb: 'list', resource: 'nodes', long: false, count: 2, errors: 0, seconds: 1.5, etcd: 0.9, auth: null, queued: 0, webhooks: 0, bytes: 9e6, cells: [1, 2, 15000] },
  ],
}

test('pods wait for what has not happened to them yet', () => {
  const c = waitingChart(curves)
  assert.deepEqual(c.lines.map((l) => l.values), [[0, 2, 0, 1, null], [0, 0, 1, 0, 0], [8, 4, 2, 0, 0]])
})

test('pods of a stretch', () => {
  assert.equal(reached(curves, [0, 99]), 0) // the last step was not observed
  assert.equal(reached(curves, [1, 3]), 5)
  assert.equal(reached(curves, [-5, 2.4]), 5)
})

test('requests of a stretch are those of its steps', () => {
  assert.deepEqual(requestRows(tracks, null).map((r) => [r.agent, r.verb, r.count, r.seconds]), [['b', 'list', 2, 1.5], ['a', 'create', 6, 0.6], ['a', 'watch', 1, 0]])
  assert.deepEqual(requestRows(tracks, [1, 2]).map((r) => [r.agent, r.verb, r.count, r.seconds]), [['a', 'create', 5, 0.5]])
  assert.deepEqual(stepsOf(tracks, [0.2, 0.4]), [0, 1])
  assert.deepEqual(requestRows(tracks, [1, 2]).map((r) => [r.etcd, r.webhooks, r.bytes]), [[null, 0.5, 600]]) // of the whole time
  const whole = requestRows(tracks, [-1, 3])
  assert.equal(whole.reduce((s, r) => s + r.count, 0), 9)
})

test('requests by client, over time', () => {
  const c = requestChart(tracks, 3)
  assert.deepEqual(c.lines.map((l) => [l.label, l.values]), [['a', [1, 1, 5]], ['b', [0, 2, 0]]])
  assert.deepEqual(requestChart(tracks, 3, [-0.5, 1]).lines[0]!.values, [1, 1, null]) // not recorded is not zero
  const many: Tracks = { ...tracks, requests: Array.from({ length: 12 }, (_, i) => ({ ...tracks.requests[2]!, agent: `c${i}` })) }
  const lines = requestChart(many, 3).lines
  assert.equal(lines.length, 8)
  assert.deepEqual(lines.at(-1)!.values, [0, 10, 0])
})

test('disks have a chart for each unit', () => {
  assert.deepEqual(diskCharts(tracks).map((c) => [c.unit, c.lines.length]), [['MB/s', 1], ['%', 1]])
})

test('means leave out what was not observed', () => {
  assert.equal(meanIn([0, 1, 2], [1, 3, null], null), 2)
  assert.equal(meanIn([0, 1, 2], [1, 3, null], [1, 3]), 3)
  assert.equal(meanIn([0, 1, 2], [1, 3, null], [2, 3]), null)
})

test('a selection lies on the axis, in order', () => {
  assert.deepEqual(tidy([7, 2.04], [-5, 6]), [2, 6])
  assert.equal(tidy([3, 3.04], [0, 9]), null)
})

test('a stage leads to the seconds in which pods waited in it', () => {
  const r = { curves } as Round
  assert.deepEqual(stageRange(r, 'controller'), [0, 2])
  assert.deepEqual(stageRange(r, 'decide'), [2, 3])
  assert.deepEqual(stageRange(r, 'unheard of'), [0, 4])
})

test('pods and log lines of a stretch', () => {
  const pods = { names: ['a/slow', 'a/never', 'a/quick'], nodes: ['n'], node: [0, -1, 0], asked: [0, 1000, 500], created: [10, NotSeen, 600], bound: [2000, NotSeen, 700], running: [9000, NotSeen, 800], left: 0 }
  assert.deepEqual(podRows(pods, null)[1], { name: 'a/never', node: '', asked: 1, created: null, bound: null, running: null })
  assert.deepEqual(podRows(pods, [2, 3]).map((p) => p.name), ['a/slow', 'a/never'])
  assert.deepEqual(podRows(pods, [0, 0.55]).map((p) => p.name), ['a/slow', 'a/quick'])
  const row = (first: number | null, last: number | null): LogRow => ({ component: 'c', severity: 'I', kind: '', text: 't', example: '', count: 1, seconds: null, first, last })
  assert.equal(logRows([row(0, 1), row(3, 4), row(null, null)], [2, 5]).length, 2)
})
