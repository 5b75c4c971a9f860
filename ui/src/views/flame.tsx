// The flame graph: which stacks, of what time, against what; and what of them.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Round } from '../recording.ts'
import { change, drawnWeight, scale, type By, type SideFacts, type Width } from '../model/flame/diff.ts'
import { folded, pprof, speedscope, svg, type SvgBox } from '../model/flame/export.ts'
import {
  decode, exactly, fold, functionRows, inverted, noEdits, pattern, rounded, sandwich, search, Symbols, within,
  type Edits, type FunctionRow, type Range, type Side, type Source, type Tree,
} from '../model/flame/tree.ts'
import { componentColour, differenceColour, differenceSteps, inkOn, kindColour, packageColour, unchanged, workKind, workKinds } from '../model/colour.ts'
import { reached } from '../model/chart.ts'
import { requestsIn } from '../model/timeline.ts'
import { duration, num, percent, splitFunction } from '../model/format.ts'
import { numbers } from '../model/address.ts'
import { count, flag, oneOf, text as words, useKept, type Code } from './address.ts'
import { CallGraph } from './callgraph.tsx'
import { Swatch } from './chart.tsx'
import { draw, FlameCanvas, rowHeight, type Control } from './flamecanvas.tsx'
import { useColour, useDark } from './theme.ts'

interface Props {
  rounds: readonly Round[]
  /** The stretch of seconds that is selected in each round. */
  ranges: readonly (Range | null)[]
  /** A function that a reader asked for elsewhere on the page. */
  asked: Asked | null
  /** The last round against the first, to begin with. */
  diff: boolean
}

export interface Asked { component: string; function: string }

/** Where one side comes from. */
interface Origin {
  key: string
  round: number
  source: Source
  /** Of stacks of the machine: the component alone. */
  component: string
  rest: boolean // all but the selected seconds
  label: string
}

const editsCode: Code<Edits> = {
  to: (e) => [numbers.to(e.hide), numbers.to(e.focus), numbers.to(e.drop), e.recursion ? 'r' : ''].join('-'),
  from: (s) => { const [hide = '', focus = '', drop = '', r] = s.split('-'); return { hide: numbers.from(hide), focus: numbers.from(focus), drop: numbers.from(drop), recursion: r === 'r' } },
}

type Shape = 'down' | 'bottom' | 'sandwich'

export function FlameGraph({ rounds, ranges, asked, diff }: Props) {
  const dark = useDark()
  const colour = useColour()
  const symbols = useMemo(() => new Symbols(), [rounds])
  const origins = useMemo(() => originsOf(rounds, symbols), [rounds, symbols])
  const [picked, pick] = useKept('stacks', () => (diff ? origins.findLast((o) => o.source === origins.findLast((x) => x.source.flame.source === 'stacks' && x.component === '')?.source && o.component === '') : undefined)?.key ?? '', words)
  const [other, setOther] = useKept('vs', () => (diff ? origins.find((o) => o.round === 0 && o.source.flame.source === 'stacks' && o.component === '') : undefined)?.key ?? '', words)
  const [shape, setShape] = useKept<Shape>('shape', 'down', oneOf('down', 'bottom', 'sandwich'))
  const [centre, setCentre] = useKept('centre', -1, count)
  const [up, setUp] = useKept('up', false, flag)
  const [edits, setEdits] = useKept<Edits>('edits', noEdits, editsCode)
  const [text, setText] = useKept('q', '', words)
  const [by, setBy] = useKept<By>('by', 'share', oneOf('share', 'absolute', 'pod', 'request'))
  const [width, setWidth] = useKept<Width>('width', 'both', oneOf('both', 'before', 'after'))
  const [paint, setPaint] = useKept<'kind' | 'package'>('colour', 'kind', oneOf('kind', 'package'))
  const [asTable, setAsTable] = useKept('table', false, flag)
  const [asGraph, setAsGraph] = useKept('graph', false, flag)
  const [zoom, setZoom] = useKept<readonly number[]>('zoom', [], numbers)
  const [at, setAt] = useState<{ tree: Tree; frame: number } | null>(null)
  const field = useRef<HTMLInputElement>(null)
  const main = useRef<Control | null>(null)
  const callers = useRef<Control | null>(null)

  useEffect(() => {
    if (!asked) return
    // Of a comparison the candidate's, against the baseline's.
    const mine = origins.filter((o) => o.component === asked.component && (!diff || o.round === rounds.length - 1))
    const own = mine.find((o) => o.source.flame.source === 'pprof') ?? mine[0]
    if (own) {
      pick(own.key)
      if (diff) setOther(origins.find((o) => o.round === 0 && o.component === own.component && o.source.flame.source === own.source.flame.source)?.key ?? '')
    }
    setShape('down')
    setText(exactly(asked.function))
    requestAnimationFrame(() => requestAnimationFrame(() => main.current?.match(1)))
  }, [asked])
  const origin = origins.find((o) => o.key === picked) ?? origins[0]
  const others = useMemo(() => (origin ? against(origins, origin, rounds, ranges) : []), [origins, origin, rounds, ranges])
  const before = others.find((o) => o.key === other)
  const sides = useMemo(() => (origin ? [...(before ? [before] : []), origin].map((o) => sideOf(o, rounds, ranges, symbols)) : []), [origin, before, rounds, ranges, symbols])
  const tree = useMemo(() => fold(sides, edits, symbols.names.length), [sides, edits, symbols])
  const facts = sides.map((s, i): SideFacts & { seconds: number; label: string } => ({
    unit: s.source.flame.unit, total: tree.total[i]![0]!, pods: s.pods, requests: s.requests, seconds: s.seconds,
    label: before && before.round !== origin?.round && s === sides.at(-1) ? `${rounds[origin!.round]!.name}: ${s.label}` : s.label,
  }))
  const ks = before ? scale(by, facts[0]!, facts[1]!) : null
  const pictures = useMemo(() => {
    if (shape === 'sandwich' && centre >= 0) {
      const s = sandwich(tree, centre, symbols.names.length)
      return [s.callees, s.callers]
    }
    return [shape === 'bottom' ? inverted(tree, symbols.names.length) : tree]
  }, [tree, shape, centre, symbols])
  const weights = useMemo(() => pictures.map((t) => drawnWeight(t, width, ks)), [pictures, width, ks?.[0], ks?.[1]])
  const wanted = useMemo(() => pattern(text), [text])
  const matches = useMemo(() => {
    const known = new Map<number, boolean>()
    return wanted && ((i: number) => {
      if (!known.has(i)) known.set(i, wanted.test(symbols.name(i)))
      return known.get(i)!
    })
  }, [wanted, symbols])
  const found = useMemo(() => pictures.map((t) => (matches ? search(t, matches) : null)), [pictures, matches])
  // Of the whole tree: a sandwich shows a part of it.
  const inAll = useMemo(() => (matches ? search(tree, matches) : null), [tree, matches])
  const rows = useMemo(() => (asTable ? functionRows(tree) : []), [tree, asTable])

  if (!origin) return <p class="missing">No CPU profile and no stack was recorded.</p>

  const fillOf = (t: Tree) => {
    const byName = new Map<number, string>()
    return (f: number): string => {
      if (before) return colour(ks ? differenceColour(f === 0 ? 0 : change(t.total[0]![f]!, t.total[1]![f]!, ks)) : unchanged)
      const name = t.name[f]!
      let c = byName.get(name)
      if (c === undefined) byName.set(name, c = colour(nameColour(symbols, name, paint)))
      return c
    }
  }
  const label = (t: Tree) => (f: number) => splitFunction(symbols.name(t.name[f]!))[1]
  const edit = (kind: 'hide' | 'focus' | 'drop', name: number) => {
    if (name >= 0 && !edits[kind].includes(name)) setEdits({ ...edits, [kind]: [...edits[kind], name] })
  }
  const turn = (name: number) => { if (name >= 0) { setCentre(name); setShape('sandwich') } }
  const now = at && pictures.includes(at.tree) ? at : { tree: pictures[0]!, frame: 0 }
  const nowName = now.tree.name[now.frame]!
  const onKey = (t: Tree) => (key: string, frame: number): boolean => {
    const name = t.name[frame]!
    switch (key) {
      case '/': field.current!.focus(); break
      case 'i': setUp(!up); break
      case 'b': setShape(shape === 'bottom' ? 'down' : 'bottom'); break
      case 's': shape === 'sandwich' && name === centre ? setShape('down') : turn(name); break
      case 'h': edit('hide', name); break
      case 'f': edit('focus', name); break
      case 'x': edit('drop', name); break
      case 'r': setEdits({ ...edits, recursion: !edits.recursion }); break
      case 'u': setEdits(noEdits); setShape('down'); break
      case 'd': if (before) setBy(by === 'share' ? 'absolute' : by === 'absolute' ? 'pod' : by === 'pod' ? 'request' : 'share'); break
      case 'e': if (before) setWidth(width === 'both' ? 'after' : width === 'after' ? 'before' : 'both'); break
      case 'c': setPaint(paint === 'kind' ? 'package' : 'kind'); break
      case 't': setAsTable(!asTable); break
      case 'g': setAsGraph(!asGraph); break
      default: return false
    }
    return true
  }
  const title = `${before ? `${before.label} → ` : ''}${facts.at(-1)!.label}`
  const shownTree = pictures[0]!
  const save = {
    svg: () => {
      const { rows: boxes, width: w } = main.current!.rows()
      const list: SvgBox[] = []
      const fill = fillOf(shownTree)
      boxes.forEach((r, row) => r.frame.forEach((f, i) => list.push({
        x: r.x[i]!, w: r.w[i]!, row: up ? boxes.length - 1 - row : row, label: f < 0 ? '' : label(shownTree)(f),
        title: f < 0 ? 'frames too narrow to draw' : `${symbols.name(shownTree.name[f]!)}: ${describe(shownTree, f, facts)}`,
        fill: f < 0 ? '#8888' : fill(f), ink: f < 0 ? '#000' : inkOn(fill(f)),
      })))
      download('flame.svg', 'image/svg+xml', svg(list, w, boxes.length, rowHeight, title, dark ? '#14181d' : '#ffffff', dark ? '#f2f5f8' : '#14181d'))
    },
    png: () => {
      const { rows: boxes, width: w } = main.current!.rows()
      // Browsers refuse canvases that are higher.
      const all = boxes.slice(0, Math.floor(16000 / rowHeight))
      const el = document.createElement('canvas')
      el.width = 2 * w
      el.height = 2 * all.length * rowHeight
      const ctx = el.getContext('2d')!
      const paper = dark ? '#14181d' : '#ffffff'
      ctx.scale(2, 2)
      draw(ctx, {
        rows: all, width: w, height: all.length * rowHeight, top: 0, up, fill: fillOf(shownTree), text: label(shownTree), selected: -1, over: -1, found: found[0]?.hit ?? null,
        ink: dark ? '#f2f5f8' : '#14181d', paper, muted: dark ? '#9aa4b0' : '#5c6670', accent: paper, match: dark ? '#ffd34d' : '#b3261e',
      })
      ctx.globalCompositeOperation = 'destination-over'
      ctx.fillStyle = paper
      ctx.fillRect(0, 0, w, all.length * rowHeight)
      el.toBlob((b) => { if (b) download('flame.png', 'image/png', b) })
    },
    folded: () => download('stacks.folded', 'text/plain', folded(tree, symbols)),
    speedscope: () => download('stacks.speedscope.json', 'application/json',
      speedscope(tree, symbols, title, facts.map((f) => f.unit), facts.map((f) => f.label))),
    pprof: () => void compressed(pprof(tree, symbols, tree.self.length - 1, facts.at(-1)!.unit, facts.at(-1)!.seconds))
      .then((b) => download('cpu.pb.gz', 'application/octet-stream', b)),
  }
  const pruned = origin.source.flame.pruned
  return (
    <div class="flamegraph">
      <div class="controls">
        <label>Stacks <select value={origin.key} onChange={(e) => { pick(e.currentTarget.value); setShape('down') }}>
          {groups(origins, rounds).map(([name, list]) => (
            <optgroup label={name} key={name}>{list.map((o) => <option key={o.key} value={o.key}>{o.label}</option>)}</optgroup>
          ))}
        </select></label>
        <label>Compared with <select value={before?.key ?? ''} onChange={(e) => setOther(e.currentTarget.value)} disabled={others.length === 0}>
          <option value="">{others.length === 0 ? 'nothing to compare with' : 'nothing'}</option>
          {others.map((o) => <option key={o.key} value={o.key}>{o.label}</option>)}
        </select></label>
        <span class="searchbox">
          <label>Search <input ref={field} type="search" value={text} spellcheck={false} placeholder="function or regular expression"
            onInput={(e) => setText(e.currentTarget.value)}
            onKeyDown={(e) => { if (e.key === 'Enter') { e.preventDefault(); main.current?.match(e.shiftKey ? -1 : 1) } }} /></label>
          <button type="button" onClick={() => main.current?.match(-1)} disabled={!inAll?.frames} aria-label="previous match">↑</button>
          <button type="button" onClick={() => main.current?.match(1)} disabled={!inAll?.frames} aria-label="next match">↓</button>
          <output class="matched">{inAll && (inAll.frames === 0 ? 'no match'
            : `${inAll.frames} frame${inAll.frames === 1 ? '' : 's'}, ${facts.map((s, i) => amount(inAll.weight[i]!, s)).join(' → ')}`)}</output>
        </span>
      </div>
      <div class="controls">
        <Choice label="Shape" value={shape} set={(s) => (s === 'sandwich' ? turn(nowName) : setShape(s))}
          options={[['down', 'top down'], ['bottom', 'bottom up'], ['sandwich', 'sandwich']]} />
        <Choice label="Direction" value={up ? 'up' : 'down'} set={(s) => setUp(s === 'up')} options={[['down', 'icicle'], ['up', 'flame']]} />
        {before ? (
          <>
            <Choice label="Differ by" value={by} set={setBy} options={[['share', 'share'], ['absolute', 'CPU-s'], ['pod', 'per pod'], ['request', 'per request']]} />
            <Choice label="Widths" value={width} set={setWidth} options={[['both', 'both'], ['after', 'after'], ['before', 'before']]} />
          </>
        ) : <Choice label="Colour" value={paint} set={setPaint} options={[['kind', 'work'], ['package', 'package']]} />}
        <button type="button" class="switch" aria-pressed={edits.recursion} onClick={() => setEdits({ ...edits, recursion: !edits.recursion })}>collapse recursion</button>
        <button type="button" class="switch" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>table</button>
        <button type="button" class="switch" aria-pressed={asGraph} onClick={() => setAsGraph(!asGraph)}>call graph</button>
        <span class="save">Save {Object.entries(save).map(([name, f]) => <button type="button" key={name} onClick={f}>{name}</button>)}</span>
      </div>
      <p class="flamehead">
        {facts.map((s, i) => <span key={i}>{i > 0 && ' → '}<b>{s.label}</b>: {num(s.total * s.unit)} CPU-s in {duration(Math.round(s.seconds * 10) / 10)}, {s.total} samples{s.pods > 0 && `, ${num(1000 * s.total * s.unit / s.pods)} ms a pod`}</span>)}
        {pruned > 0 && <span class="warn"> · pruned: {percent(pruned / origin.source.self.reduce((a, b) => a + b, 0))} stands under (small)</span>}
        {origin.source.flame.step === 0 && ranges[origin.round] && <span class="warn"> · a profile tells no times: this is all of it, not the selected seconds</span>}
      </p>
      <Chips edits={edits} set={setEdits} symbols={symbols} />
      {shape === 'sandwich' && centre >= 0 && (
        <>
          <p class="flamehead"><b>{symbols.name(centre)}</b> with all its callers above and all that it calls below <button type="button" onClick={() => setShape('down')}>back to the whole</button></p>
          <FlameCanvas key="callers" tree={pictures[1]!} weight={weights[1]!} up label={`callers of ${symbols.name(centre)}`} fill={fillOf(pictures[1]!)} text={label(pictures[1]!)}
            found={found[1]!} onFrame={(frame) => setAt({ tree: pictures[1]!, frame })} onKey={onKey(pictures[1]!)} control={callers} />
        </>
      )}
      <FlameCanvas key="main" tree={shownTree} weight={weights[0]!} up={up && shape !== 'sandwich'} label={`Flame graph of ${title}; the table holds the same data`} fill={fillOf(shownTree)} text={label(shownTree)}
        found={found[0]!} onFrame={(frame) => setAt({ tree: shownTree, frame })} onKey={onKey(shownTree)} control={main} zoom={zoom} onZoom={setZoom} />
      <Details tree={now.tree} frame={now.frame} facts={facts} symbols={symbols}
        actions={nowName >= 0 ? [['sandwich', 's', () => turn(nowName)], ['hide', 'h', () => edit('hide', nowName)], ['only with it', 'f', () => edit('focus', nowName)], ['without it', 'x', () => edit('drop', nowName)]] : []} />
      {before ? (
        <p class="note"><span class="ramp" aria-hidden="true">{differenceSteps.map((c, i) => <i key={i} style={{ background: colour(c) }} />)}</span>{' '}
          Blue is less, orange more, {by === 'share' ? 'as a part of the whole' : by === 'absolute' ? 'in CPU-seconds' : by === 'pod' ? 'per pod' : 'per request to the API server'}{ks ? '' : ': cannot be said, because there was none on one side'}; grey: the samples’ own chance can be the reason (below 3 standard deviations).
          How much one run differs from the next is not in that. With widths of both, frames that vanished and new ones keep theirs.</p>
      ) : paint === 'kind' && <p class="note kinds">{workKinds.map((k) => <span key={k}><Swatch colour={colour(kindColour(k))} /> {k}</span>)}</p>}
      <p class="note" id="flame-keys">Click or Enter zooms, 0 shows all, arrows walk. / searches, n and N go to the next and previous match, s turns to callers and callees, h hides a function, f keeps only stacks with it, x those without, r collapses recursion, b bottom up, i icicle or flame, c colours, t table, g call graph, u undoes all{before && ', d what is compared, e whose widths'}.</p>
      {asGraph && <CallGraph tree={tree} facts={facts.at(-1)!} symbols={symbols} fill={(name) => colour(nameColour(symbols, name, paint))} onPick={turn} />}
      {asTable && <FunctionTable rows={rows} facts={facts} symbols={symbols} matches={matches} onPick={turn} />}
    </div>
  )
}

function nameColour(s: Symbols, name: number, paint: 'kind' | 'package') {
  if (name < 0) return unchanged
  const cls = s.classes[name]!
  if (cls === '') return componentColour(s.name(name))
  if (paint === 'kind') return kindColour(workKind(cls))
  return packageColour(packageOf(s.name(name)))
}

function packageOf(name: string): string {
  if (name.endsWith('_[k]')) return 'kernel'
  const [path, rest] = splitFunction(name)
  return path + rest.split('.')[0]!
}

function originsOf(rounds: readonly Round[], symbols: Symbols): Origin[] {
  const out: Origin[] = []
  rounds.forEach((r, round) => {
    for (const source of decode(r.flames, symbols)) {
      const f = source.flame
      const one = (component: string, label: string) =>
        out.push({ key: `${round}/${f.source}/${component}/${f.phase}/${out.length}`, round, source, component, rest: false, label })
      if (f.source !== 'stacks') {
        one(f.component, `${f.component}, its CPU profile${f.phase && `, ${f.phase}`}`)
        continue
      }
      one('', 'the whole machine, sampled stacks')
      const weight = new Map<string, number>()
      const top = new Int32Array(source.name.length)
      for (let i = 1; i < source.name.length; i++) {
        top[i] = source.parent[i] === 0 ? source.name[i]! : top[source.parent[i]!]!
        if (source.self[i]) weight.set(symbols.name(top[i]!), (weight.get(symbols.name(top[i]!)) ?? 0) + source.self[i]!)
      }
      for (const [component] of [...weight].filter(([c]) => !c.startsWith('(')).sort((a, b) => b[1] - a[1])) one(component, `${component}, sampled stacks`)
    }
  })
  return out
}

/** What a side may be compared with: the like of it in another round, or the rest of its own time. */
function against(all: readonly Origin[], o: Origin, rounds: readonly Round[], ranges: Props['ranges']): Origin[] {
  const like = (x: Origin) => x !== o && x.component === o.component && x.source.flame.source === o.source.flame.source
  const out = all.filter(like).map((x) => ({ ...x, label: `${rounds[x.round]!.name}: ${x.label}` }))
  if (o.source.flame.step > 0 && ranges[o.round]) out.unshift({ ...o, key: 'rest', rest: true, label: 'the seconds that are not selected' })
  return out
}

function groups(all: readonly Origin[], rounds: readonly Round[]): [string, Origin[]][] {
  return rounds.map((r, i): [string, Origin[]] => [r.name, all.filter((o) => o.round === i)]).filter(([, l]) => l.length > 0)
}

function sideOf(o: Origin, rounds: readonly Round[], ranges: Props['ranges'], symbols: Symbols): Side & { pods: number; requests: number; seconds: number; label: string } {
  const f = o.source.flame
  const range = f.step > 0 ? ranges[o.round] ?? null : null
  const below = f.source === 'stacks' && o.component ? symbols.find(o.component) : undefined
  const pods = range ? reached(rounds[o.round]!.curves, range) : f.pods
  let self = within(o.source, range)
  let seconds = f.to - f.from
  let label = o.label
  let ran = f.pods
  const tracks = rounds[o.round]!.tracks
  let asked = requestsIn(tracks, [f.from, f.to])
  if (range) {
    const [from, to] = rounded(o.source, range)
    if (o.rest) {
      self = o.source.self.map((x, i) => x - self[i]!)
      seconds -= to - from
      ran = f.pods - pods
      asked -= requestsIn(tracks, [from, to])
    } else {
      label += `, ${num(from)}–${num(to)} s`
      seconds = to - from
      ran = pods
      asked = requestsIn(tracks, [from, to])
    }
  }
  return { source: o.source, self, ...(below === undefined ? {} : { below }), pods: ran, requests: Math.max(0, asked), seconds, label }
}

const amount = (weight: number, s: SideFacts): string =>
  `${num(weight * s.unit)} CPU-s (${percent(s.total > 0 ? weight / s.total : 0)})`

const perRequest = (weight: number, s: SideFacts): string => `${num((1e6 * weight * s.unit) / s.requests)} µs`

const perPod = (weight: number, s: SideFacts): string => (s.pods > 0 ? `${num((1000 * weight * s.unit) / s.pods)} ms` : '–')

function describe(t: Tree, frame: number, facts: readonly SideFacts[]): string {
  const part = (w: readonly Float64Array[]) => facts.map((s, i) => amount(w[i]![frame]!, s)).join(' → ')
  return `total ${part(t.total)}, self ${part(t.self)}`
}

interface DetailsProps {
  tree: Tree
  frame: number
  facts: readonly SideFacts[]
  symbols: Symbols
  actions: readonly (readonly [string, string, () => void])[]
}

function Details({ tree, frame, facts, symbols, actions }: DetailsProps) {
  const name = tree.name[frame]!
  const [path, rest] = splitFunction(symbols.name(name))
  const note = symbols.notes.get(name)
  const ks = facts.length > 1 ? (['share', 'absolute', 'pod', 'request'] as const).map((b) => [b, scale(b, facts[0]!, facts[1]!)] as const) : []
  return (
    <div class="details">
      <p class="framename" aria-live="polite"><code><span class="path">{path}</span>{rest}</code>{name >= 0 && symbols.classes[name] && <span class="tag">{symbols.classes[name]}</span>}
        {actions.map(([label, key, f]) => <button type="button" key={label} onClick={f} title={`key ${key}`}>{label}</button>)}</p>
      <p class="small">{facts.map((s, i) => (
        <span key={i}>{i > 0 && ' → '}<b>total</b> {amount(tree.total[i]![frame]!, s)} · <b>self</b> {amount(tree.self[i]![frame]!, s)}{s.pods > 0 && <> · {perPod(tree.total[i]![frame]!, s)} a pod</>}{s.requests > 0 && <> · {perRequest(tree.total[i]![frame]!, s)} a request</>}</span>
      ))}
        {ks.map(([b, k]) => <span key={b}> · {b === 'share' ? 'share' : b === 'absolute' ? 'CPU-s' : b === 'pod' ? 'per pod' : 'per request'} {verdict(tree, frame, k)}</span>)}
      </p>
      <p class="small why">{note}</p>
    </div>
  )
}

/** By how much a frame differs, in words. */
function verdict(t: Tree, f: number, ks: readonly [number, number] | null): string {
  if (!ks) return 'cannot be said'
  const [a, b] = [t.total[0]![f]!, t.total[1]![f]!]
  if (change(a, b, ks) === 0) return '~'
  if (a === 0) return 'new'
  if (b === 0) return 'vanished'
  return `×${num((b * ks[1]) / (a * ks[0]))}`
}

function Choice<T extends string>({ label, value, set, options }: { label: string; value: T; set: (v: T) => void; options: readonly (readonly [T, string])[] }) {
  return (
    <span class="choice" role="group" aria-label={label}>
      {options.map(([v, text]) => <button type="button" class="switch" key={v} aria-pressed={v === value} onClick={() => set(v)}>{text}</button>)}
    </span>
  )
}

function Chips({ edits, set, symbols }: { edits: Edits; set: (e: Edits) => void; symbols: Symbols }) {
  const kinds = [['hide', 'hidden'], ['focus', 'only with'], ['drop', 'without']] as const
  if (kinds.every(([k]) => edits[k].length === 0)) return null
  return (
    <p class="chips">{kinds.flatMap(([k, label]) => edits[k].map((n) => (
      <button type="button" key={`${k} ${n}`} onClick={() => set({ ...edits, [k]: edits[k].filter((x) => x !== n) })} title="take this back">
        {label} <code>{splitFunction(symbols.name(n))[1]}</code> ✕
      </button>
    )))}</p>
  )
}

const few = 40

function FunctionTable({ rows, facts, symbols, matches, onPick }: { rows: readonly FunctionRow[]; facts: readonly SideFacts[]; symbols: Symbols; matches: ((i: number) => boolean) | null; onPick: (name: number) => void }) {
  const [sort, setSort] = useState<'self' | 'total' | 'change'>('self')
  const [all, setAll] = useState(false)
  const two = facts.length > 1
  const ks = two ? scale('share', facts[0]!, facts[1]!) : null
  const delta = (r: FunctionRow) => (ks ? r.total[1]! * ks[1] - r.total[0]! * ks[0] : 0)
  const weight = (r: FunctionRow) => (sort === 'change' ? Math.abs(delta(r)) : Math.max(...r[sort].map((w, i) => w / Math.max(1, facts[i]!.total))))
  const list = rows.filter((r) => !matches || matches(r.name)).sort((a, b) => weight(b) - weight(a) || a.name - b.name)
  const head = (key: typeof sort, label: string) => (
    <th scope="col" class="n" aria-sort={sort === key ? 'descending' : 'none'}><button type="button" class="sort" onClick={() => setSort(key)}>{label}{sort === key && ' ▾'}</button></th>
  )
  return (
    <>
      <div class="scroll" tabIndex={0}>
        <table class="grid functions flametable">
          <caption>Functions of these stacks</caption>
          <thead><tr><th scope="col">Function</th>{head('self', two ? 'self, before → after' : 'self')}{head('total', two ? 'total, before → after' : 'total')}{two ? head('change', 'share') : <th scope="col" class="n">total per pod</th>}</tr></thead>
          <tbody>
            {(all ? list : list.slice(0, few)).map((r) => {
              const [path, name] = splitFunction(symbols.name(r.name))
              return (
                <tr key={r.name}>
                  <th scope="row"><button type="button" class="sort" onClick={() => onPick(r.name)} title="callers and callees"><code><span class="path">{path}</span>{name}</code></button></th>
                  <td class="n">{facts.map((s, i) => amount(r.self[i]!, s)).join(' → ')}</td>
                  <td class="n">{facts.map((s, i) => amount(r.total[i]!, s)).join(' → ')}</td>
                  <td class="n">{two ? (ks && change(r.total[0]!, r.total[1]!, ks) !== 0 ? `${delta(r) > 0 ? '+' : '−'}${percent(Math.abs(delta(r)))}` : '~') : perPod(r.total[0]!, facts[0]!)}</td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      {list.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${list.length}`}</button>}
    </>
  )
}

function download(name: string, type: string, content: string | Uint8Array | Blob): void {
  const url = URL.createObjectURL(new Blob([content as BlobPart], { type }))
  const a = document.createElement('a')
  a.href = url
  a.download = name
  a.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}

async function compressed(b: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([b as BlobPart]).stream().pipeThrough(new CompressionStream('gzip'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}
