// The recordings of a folder: list, filter, sort; open one, set some against
// others, ask many. What a diagnosis says is read for rows that are looked at.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Entry, Folder, Summary } from '../recording.ts'
import { address, ask, key, listed, type Column } from '../model/served.ts'
import { pattern } from '../model/flame/tree.ts'
import { duration, moment, num, value } from '../model/format.ts'
import { flag, oneOf, text as words, useKept } from './address.ts'
import { Query } from './query.tsx'

const again = 5000 // ms between two looks at the folder
const atOnce = 2 // diagnoses asked for at the same time
const page = 100 // rows drawn at first

export function FolderView({ folder }: { folder: Folder }) {
  const [entries, setEntries] = useState<readonly Entry[]>(folder.entries)
  const [gone, setGone] = useState('')
  const [summaries, setSummaries] = useState<ReadonlyMap<string, Summary>>(new Map())
  const [text, setText] = useKept('q', '', words)
  const [status, setStatus] = useKept('status', '', words)
  const [by, setBy] = useKept<Column>('by', 'started', oneOf('name', 'started', 'status', 'seconds', 'pods', 'rate', 'verdict'))
  const [down, setDown] = useKept('down', true, flag)
  const [rows, setRows] = useState(page)
  const [a, setA] = useState<ReadonlySet<string>>(new Set())
  const [b, setB] = useState<ReadonlySet<string>>(new Set())
  const queue = useRef<Entry[]>([])
  const known = useRef(new Set<string>())
  const busy = useRef(0)

  // Looks again for recordings that came, went, or are still being written.
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return
      ask<Entry[]>('/api/recordings', []).then((e) => { setEntries(e); setGone('') }, (err: Error) => setGone(err.message))
    }, again)
    return () => clearInterval(timer)
  }, [])

  const next = () => {
    while (busy.current < atOnce) {
      const e = queue.current.shift()
      if (!e) return
      busy.current++
      ask<Summary>('/api/summary', [['of', e.name]])
        .catch((err: Error): Summary => ({ name: e.name, verdict: '', valid: false, found: false, rate: null, reached: 0, until: 'running', error: err.message }))
        .then((s) => {
          busy.current--
          setSummaries((all) => new Map(all).set(key(e), s))
          next()
        })
    }
  }
  const read = (list: readonly Entry[]) => {
    for (const e of list) {
      if (e.status === 'running' || e.damaged || known.current.has(key(e))) continue
      known.current.add(key(e))
      queue.current.push(e)
    }
    next()
  }

  const wanted = pattern(text)
  const list = useMemo(() => listed(entries, summaries, { text: wanted, status, by, down }), [entries, summaries, text, status, by, down])
  const shown = list.slice(0, rows)
  const unread = list.filter((e) => e.status !== 'running' && !e.damaged && !summaries.has(key(e)))
  const statuses = useMemo(() => [...new Set(entries.map((e) => e.status))].sort(), [entries])

  // A row that comes into sight is read.
  const body = useRef<HTMLTableSectionElement>(null)
  const sight = useRef(read)
  sight.current = read
  useEffect(() => {
    const seen = new IntersectionObserver((changes) => {
      const names = new Set(changes.filter((c) => c.isIntersecting).map((c) => (c.target as HTMLElement).dataset['name']))
      sight.current(entries.filter((e) => names.has(e.name)))
    })
    for (const row of body.current?.rows ?? []) seen.observe(row)
    return () => seen.disconnect()
  }, [entries, shown.map((e) => e.name).join('\n')])

  const sort = (c: Column) => {
    if (c === by) setDown(!down)
    else { setBy(c); setDown(c !== 'name' && c !== 'verdict' && c !== 'status') }
  }
  const head = (c: Column, label: string, n = false) => (
    <th scope="col" class={n ? 'n' : ''} aria-sort={by === c ? (down ? 'descending' : 'ascending') : 'none'}>
      <button type="button" class="sort" onClick={() => sort(c)}>{label}{by === c && (down ? ' ▾' : ' ▴')}</button>
    </th>
  )
  const put = (e: Entry, side: 'A' | 'B') => {
    const [mine, other] = side === 'A' ? [new Set(a), new Set(b)] : [new Set(b), new Set(a)]
    if (!mine.delete(e.name)) { mine.add(e.name); other.delete(e.name) }
    setA(side === 'A' ? mine : other)
    setB(side === 'A' ? other : mine)
  }
  const finished = list.filter((e) => e.status !== 'running' && !e.damaged)
  const chosen = [...a, ...b]
  const asked = (chosen.length > 0 ? chosen : finished.map((e) => e.name)).slice(0, 64)
  const link = (ok: boolean, href: string, words: string) => (ok ? <a class="act" href={href}>{words}</a> : <span class="act off" aria-disabled="true">{words}</span>)
  return (
    <>
      <header>
        <div class="bar"><span class="brand">kubedyno</span></div>
        <h1>Recordings in {folder.name}</h1>
      </header>
      <main>
        <section aria-label="Recordings">
          <div class="controls">
            <label>Filter <input type="search" size={30} value={text} spellcheck={false} placeholder="name, setting, machine, verdict" onInput={(e) => setText(e.currentTarget.value)} /></label>
            <label>Status <select value={status} onChange={(e) => setStatus(e.currentTarget.value)}><option value="">all</option>{statuses.map((s) => <option key={s}>{s}</option>)}</select></label>
            <output aria-live="polite">{list.length} of {entries.length} recordings{unread.length > 0 && `, ${unread.length} not diagnosed yet`}</output>
            {unread.length > shown.filter((e) => unread.includes(e)).length && <button type="button" onClick={() => read(list)}>diagnose all {list.length}</button>}
          </div>
          <p class="controls acts">
            {link(a.size > 0 && b.size > 0, address('/compare', [...[...a].map((n) => ['a', n] as const), ...[...b].map((n) => ['b', n] as const)]), `compare A (${a.size}) with B (${b.size})`)}
            {link(chosen.length > 1 && chosen.length < 7, address('/report', chosen.map((n) => ['of', n])), `one report of the ${chosen.length} chosen`)}
            {link(finished.length > 0 && finished.length <= 300, address('/history', finished.map((e) => ['of', e.name])), `history of the ${finished.length} listed`)}
            {chosen.length > 0 && <button type="button" onClick={() => { setA(new Set()); setB(new Set()) }}>choose none</button>}
            <span class="hint">A is the baseline, B the candidate; several of each give intervals.</span>
          </p>
          {gone && <p class="missing" role="alert">The folder could not be read again: {gone}</p>}
          {entries.length === 0 ? <p class="missing">No recording below this folder. “kubedyno run density --out r” makes one.</p> : (
            <div class="scroll" tabIndex={0} role="region" aria-label="list">
              <table class="grid folder">
                <thead>
                  <tr><th scope="col">Side</th>{head('name', 'Recording')}{head('verdict', 'What it says')}{head('rate', 'pods/s', true)}{head('pods', 'pods', true)}{head('seconds', 'took', true)}{head('started', 'Started')}{head('status', 'Status')}<th scope="col">Machine</th></tr>
                </thead>
                <tbody ref={body}>{shown.map((e) => <Row key={e.name} e={e} s={summaries.get(key(e))} side={a.has(e.name) ? 'A' : b.has(e.name) ? 'B' : ''} put={put} />)}</tbody>
              </table>
            </div>
          )}
          {list.length > shown.length && <button type="button" class="more" onClick={() => setRows(rows + 400)}>{list.length - shown.length} more</button>}
        </section>
        <section aria-label="Ask many recordings">
          <h2>Ask their metrics</h2>
          <Query of={asked} note={chosen.length > 0 ? `of the ${asked.length} chosen` : `of ${asked.length === finished.length ? `all ${asked.length}` : `the first ${asked.length}`} listed`} />
        </section>
      </main>
      <footer>kubedyno {folder.tool} · this server answers only you, and asks nobody for anything</footer>
    </>
  )
}

function Row({ e, s, side, put }: { e: Entry; s: Summary | undefined; side: string; put: (e: Entry, side: 'A' | 'B') => void }) {
  const live = e.status === 'running'
  const ready = !live && !e.damaged
  return (
    <tr data-name={e.name}>
      <td class="sides">{(['A', 'B'] as const).map((x) => <button type="button" class="switch" key={x} disabled={!ready} aria-pressed={side === x} aria-label={`${e.name} on side ${x}`} onClick={() => put(e, x)}>{x}</button>)}</td>
      <th scope="row">
        {e.damaged ? e.name : <a href={address(live ? '/live' : '/report', [['of', e.name]])}>{e.name}</a>}
        <small>{[e.experiment, ...e.settings.map((x) => `--set ${x}`)].filter(Boolean).join(' ')}</small>
      </th>
      <td class="says">
        {e.damaged ? <span class="unmeasured">{e.damaged}</span> : live ? <a href={address('/live', [['of', e.name]])}>is being recorded: watch it</a>
          : s ? <>{s.error ? <span class="unmeasured">{s.error}</span> : s.verdict}{!s.error && !s.valid && <small class="warn">not valid</small>}</> : <span class="wait-for">…</span>}
      </td>
      <td class="n">{s && !s.error ? value(s.rate) : ''}</td>
      <td class="n">{e.pods > 0 ? num(e.pods) : '–'}{s && !s.error && s.reached < e.pods && <small class="warn">{num(s.reached)} {s.until}</small>}</td>
      <td class="n">{e.seconds > 0 ? duration(Math.round(e.seconds)) : '–'}</td>
      <td>{moment(e.started)}</td>
      <td>{e.status}{e.invalid.length > 0 && <small class="warn" title={e.invalid.join('; ')}>not valid</small>}</td>
      <td class="says">{e.machine}<small>{e.nodes > 0 && `${num(e.nodes)} nodes, `}{e.kubernetes}</small></td>
    </tr>
  )
}
