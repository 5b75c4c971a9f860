import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Flame, Flames } from '../../recording.ts'
import { change, drawnWeight, scale } from './diff.ts'
import { escape, folded, speedscope, svg } from './export.ts'
import { callGraph } from './graph.ts'
import { hit, layout, neighbour, order, zoomFor } from './layout.ts'
import { differenceColour, differenceSteps, inkOn, kindColour, workKind, workKinds } from '../colour.ts'
import { decode, exactly, fold, functionRows, inverted, noEdits, pattern, rounded, sandwich, search, sums, Symbols, within, type Edits, type Source, type Tree } from './tree.ts'

/** Folded lines as a tree of the file, each sample in the interval named behind its count. */
function made(lines: string, more: Partial<Flame> = {}): { flames: Flames; symbols: Symbols; source: Source } {
  const names: string[] = []
  const frames: { name: number; parent: number }[] = []
  const self: number[] = []
  const seen: [number, number][] = []
  for (const line of lines.trim().split('\n')) {
    const [stack, count, interval] = line.trim().split(' ')
    let at = -1
    for (const f of stack!.split(';')) {
      if (!names.includes(f)) names.push(f)
      const name = names.indexOf(f)
      let next = frames.findIndex((x) => x.parent === at && x.name === name)
      if (next < 0) {
        next = frames.push({ name, parent: at }) - 1
        self.push(0)
      }
      at = next
    }
    if (interval === undefined) self[at]! += Number(count)
    else for (let i = 0; i < Number(count); i++) seen.push([Number(interval), at])
  }
  seen.sort((a, b) => a[0] - b[0] || a[1] - b[1])
  const counts = more.counts ?? []
  const flame: Flame = {
    source: counts.length ? 'stacks' : 'pprof', component: '', phase: 'load', from: 0, to: 4, pods: 2, unit: 0.01, pruned: 0, step: counts.length ? 1 : 0,
    names: frames.map((f) => f.name), callers: frames.map((f, i) => (f.parent < 0 ? 0 : i - f.parent)), self: counts.length ? [] : self,
    samples: seen.map(([k, f], i) => f - (i > 0 && seen[i - 1]![0] === k ? seen[i - 1]![1] : 0)), ...more, counts,
  }
  const flames: Flames = { names, classes: ['work'], class: names.map(() => 0), notes: [{ name: 0, text: 'known' }], trees: [flame] }
  const symbols = new Symbols()
  return { flames, symbols, source: decode(flames, symbols)[0]! }
}

const of = (lines: string, edits: Partial<Edits> | ((s: Symbols) => Partial<Edits>) = {}): { t: Tree; symbols: Symbols } => {
  const { symbols, source } = made(lines)
  const e = typeof edits === 'function' ? edits(symbols) : edits
  return { t: fold([{ source, self: source.self }], { ...noEdits, ...e }, symbols.names.length), symbols }
}
const lines = (t: Tree, s: Symbols): string[] => folded(t, s).trim().split('\n')

const stacks = `
main;a;b 3
main;a;c 2
main;a 1
main;d;a;b 4
main;d;d;e 5
gc 10`

test('a tree says again what went in', () => {
  const { t, symbols } = of(stacks)
  assert.deepEqual(lines(t, symbols), ['gc 10', 'main;a 1', 'main;a;b 3', 'main;a;c 2', 'main;d;a;b 4', 'main;d;d;e 5'])
  assert.equal(t.total[0]![0], 25)
  assert.equal(symbols.notes.get(symbols.find('main')), 'known')
})

test('a function that calls itself counts once', () => {
  const { t, symbols } = of('f;f;g;f 2\nf;h 3')
  const rows = new Map(functionRows(t).map((r) => [symbols.name(r.name), r]))
  assert.deepEqual([rows.get('f')!.self[0], rows.get('f')!.total[0]], [2, 5])
  assert.equal(search(t, (n) => symbols.name(n) === 'f').weight[0], 5)
  assert.equal(search(t, (n) => symbols.name(n) === 'f').outermost.length, 1)
})

test('edits', () => {
  const only = (e: (id: (n: string) => number) => Partial<Edits>) => {
    const { t, symbols } = of(stacks, (s) => e((n) => s.find(n)))
    return lines(t, symbols)
  }
  assert.deepEqual(only((id) => ({ hide: [id('a')] })), ['gc 10', 'main 1', 'main;b 3', 'main;c 2', 'main;d;b 4', 'main;d;d;e 5'])
  assert.deepEqual(only((id) => ({ focus: [id('a')] })), ['main;a 1', 'main;a;b 3', 'main;a;c 2', 'main;d;a;b 4'])
  assert.deepEqual(only((id) => ({ focus: [id('a'), id('d')] })), ['main;d;a;b 4'])
  assert.deepEqual(only((id) => ({ drop: [id('main')] })), ['gc 10'])
  assert.deepEqual(only(() => ({ recursion: true })), ['gc 10', 'main;a 1', 'main;a;b 3', 'main;a;c 2', 'main;d;a;b 4', 'main;d;e 5'])
})

test('a sandwich holds all callers and all callees', () => {
  const { t, symbols } = of(stacks)
  const s = sandwich(t, symbols.find('a'), symbols.names.length)
  assert.deepEqual(lines(s.callees, symbols), ['a 1', 'a;b 7', 'a;c 2'])
  assert.deepEqual(lines(s.callers, symbols), ['a;d;main 4', 'a;main 6'])
})

test('bottom up', () => {
  const { t, symbols } = of('f;g 2\nh;g 3\nf 1')
  assert.deepEqual(lines(inverted(t, symbols.names.length), symbols), ['f 1', 'g;f 2', 'g;h 3'])
})

test('a range takes its samples only', () => {
  const { source, symbols } = made('etcd;f 2 0\netcd;f;g 3 1\nsched;f 4 3', { counts: [2, 3, 0, 4] })
  const at = (from: number, to: number, below?: string) => lines(fold([{
    source, self: within(source, [from, to]), ...(below ? { below: symbols.find(below) } : {}),
  }], noEdits, symbols.names.length), symbols)
  assert.deepEqual(at(0, 4), ['etcd;f 2', 'etcd;f;g 3', 'sched;f 4'])
  assert.deepEqual(at(0.9, 2.2), ['etcd;f;g 3'])
  assert.deepEqual(at(0, 4, 'etcd'), ['f 2', 'f;g 3'])
  assert.deepEqual(at(2, 3), [''])
  assert.deepEqual(rounded(source, [0.9, 99]), [1, 4])
})

test('two sides', () => {
  const a = made('m;f 100\nm;gone 40\nm;g 10')
  const symbols = a.symbols
  const b = decode(made('m;f 300\nm;g 12\nm;new 88').flames, symbols)[0]!
  const t = fold([{ source: a.source, self: a.source.self }, { source: b, self: b.self }], noEdits, symbols.names.length)
  const ks = scale('share', { unit: 0.01, pods: 1, requests: 0, total: 150 }, { unit: 0.01, pods: 1, requests: 0, total: 400 })!
  const by = new Map(functionRows(t).map((r) => [symbols.name(r.name), change(r.total[0]!, r.total[1]!, ks)]))
  assert.equal(by.get('gone'), -1)
  assert.equal(by.get('new'), 1)
  assert.equal(by.get('m'), 0) // all, on both sides
  assert.equal(by.get('g'), 0) // 10 of 150 or 12 of 400: too few samples to tell
  const w = drawnWeight(t, 'both', ks)
  assert.ok(Math.abs(w[0]! - 2) < 1e-9)
  for (let i = 1; i < t.name.length; i++) assert.ok(w[i]! > 0 && w[i]! <= w[t.parent[i]!]! + 1e-9)
  assert.equal(scale('pod', { unit: 1, pods: 0, requests: 0, total: 1 }, { unit: 1, pods: 3, requests: 0, total: 1 }), null)
  assert.deepEqual(lines(t, symbols), ['m;f 100 300', 'm;g 10 12', 'm;gone 40 0', 'm;new 0 88'])
})

test('what is typed is a regular expression where it is one', () => {
  assert.ok(pattern('^main$')!.test('MAIN'))
  assert.ok(!pattern('Main')!.test('main'))
  assert.ok(pattern('(*Cacher')!.test('cacher.(*Cacher).GetList'))
  assert.equal(pattern('  '), null)
  assert.ok(pattern(exactly('sync.(*Map[k8s.io/x.T]).Load'))!.test('sync.(*Map[k8s.io/x.T]).Load'))
  assert.ok(!pattern(exactly('runtime.gc'))!.test('runtime.gcDrain'))
})

test('rows hold what is wide enough, and the rest as one', () => {
  const { t, symbols } = of(stacks)
  const w = t.total[0]!
  const c = order(t, w)
  const rows = layout(t, c, w, 0, 250)
  assert.deepEqual(rows[1]!.frame.map((f) => symbols.name(t.name[f]!)), ['main', 'gc'])
  assert.deepEqual(rows[1]!.w, [150, 100])
  assert.equal(hit(rows[1], 149), 0)
  assert.equal(hit(rows[1], 150), 1)
  assert.equal(hit(rows[1], 251), -1)
  const tiny = layout(t, c, w, 0, 12)
  assert.ok(tiny.some((r) => r.frame.includes(-1)))
  for (const r of rows) for (let i = 1; i < r.x.length; i++) assert.ok(r.x[i]! >= r.x[i - 1]! + r.w[i - 1]! - 1e-9)
  const e = t.name.indexOf(symbols.find('e'))
  const zoomed = layout(t, c, w, t.parent[e]!, 250)
  assert.deepEqual(zoomed.map((r) => r.w[0]), [250, 250, 250, 250, 250])
  assert.equal(zoomFor(t, w, e, 25, 4), 0)
  assert.notEqual(zoomFor(t, w, e, 10, 4), 0)
  assert.equal(neighbour(t, c, 0, 'callee'), rows[1]!.frame[0])
  assert.equal(neighbour(t, c, rows[1]!.frame[0]!, 'right'), rows[1]!.frame[1])
  assert.equal(neighbour(t, c, rows[1]!.frame[1]!, 'right'), rows[1]!.frame[1])
})

test('the work of a layout follows the pixels, not the frames', () => {
  const n = 100_000
  const parent = Int32Array.from({ length: n }, (_, i) => (i === 0 ? -1 : (i - 1) >> 3))
  const self = Float64Array.from({ length: n }, () => 1)
  const t: Tree = { name: Int32Array.from({ length: n }, (_, i) => i % 977), parent, self: [self], total: [sums(parent, self)] }
  const rows = layout(t, order(t, t.total[0]!), t.total[0]!, 0, 1400)
  for (const r of rows) assert.ok(r.x.length <= 2 * 1400)
  const deep = Int32Array.from({ length: 600 }, (_, i) => i - 1)
  const one = Float64Array.from({ length: 600 }, (_, i) => (i === 599 ? 1 : 0))
  const chain: Tree = { name: deep, parent: deep, self: [one], total: [sums(deep, one)] }
  assert.equal(layout(chain, order(chain, chain.total[0]!), chain.total[0]!, 0, 300).length, 600)
})

test('exports', () => {
  const { t, symbols } = of('a;x<y>&"z" 2\na;b;c 3')
  const s = JSON.parse(speedscope(t, symbols, 'title', [0.01], ['side'])) as { profiles: { weights: number[]; endValue: number }[]; shared: { frames: unknown[] } }
  assert.equal(s.profiles[0]!.endValue, 0.05)
  assert.equal(s.shared.frames.length, 4)
  const picture = svg([{ x: 0, w: 90, row: 0, label: '<script>', title: '"&\u0000', fill: '#fff', ink: '#000' }], 100, 1, 18, 'x]]>', '#fff', '#000')
  assert.ok(!picture.includes('<script>') && !picture.includes('\u0000'))
  assert.equal(escape('<a b="\u0001">'), '&#60;a b=&#34;\ufffd&#34;&#62;')
})

test('text is readable on every colour, and a difference has its own', () => {
  const bright = (hex: string) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i]!, 0)
  const contrast = (a: string, b: string) => (Math.max(bright(a), bright(b)) + 0.05) / (Math.min(bright(a), bright(b)) + 0.05)
  for (const pair of [...workKinds.map(kindColour), ...differenceSteps]) for (const c of pair) assert.ok(contrast(c, inkOn(c)) >= 4.5, `${c} ${contrast(c, inkOn(c))}`)
  assert.equal(workKind('kernel: memory'), 'kernel')
  assert.equal(workKind('unheard of'), 'other')
  assert.deepEqual(new Set([-1, -0.3, -0.1, 0, 0.1, 0.3, 1].map(differenceColour)).size, 7)
})

test('a call graph counts what flows between functions once, past those that are not shown', () => {
  const { t, symbols } = of(stacks)
  const g = callGraph(t, 0, 20)
  const name = (i: number) => symbols.name(g.nodes[i]!.name)
  const node = (n: string) => g.nodes.find((x) => symbols.name(x.name) === n)!
  assert.deepEqual([node('a').total, node('a').self, node('d').total, node('main').total], [10, 1, 9, 15])
  const flow = (a: string, b: string) => g.edges.find((e) => name(e.from) === a && name(e.to) === b)
  assert.equal(flow('main', 'a')!.weight, 6)
  assert.equal(flow('d', 'a')!.weight, 4)
  assert.equal(flow('a', 'b')!.weight, 7)
  assert.equal(flow('d', 'd'), undefined)
  assert.equal(flow('d', 'e')!.weight, 5)
  for (const e of g.edges) assert.ok(g.nodes[e.from]!.layer < g.nodes[e.to]!.layer)
  // Without a, what it carried is between its callers and callees.
  const few = callGraph(of(stacks, (s) => ({ hide: [s.find('d')] })).t, 0, 3)
  assert.equal(few.nodes.length, 3)
  assert.ok(few.edges.every((e) => e.weight > 0))
  // Two that call each other stand in some order, and what flows is not counted twice.
  const round = of('a;b;a;b 5\na 1')
  const r = callGraph(round.t, 0, 9)
  assert.deepEqual(r.nodes.map((n) => n.total), [6, 5])
  assert.deepEqual(r.edges.map((e) => e.weight), [5, 5])
})
