// The PromQL box: an expression over the blocks of recordings, which our own
// server evaluates.
import { useMemo, useRef, useState } from 'preact/hooks'
import type { Answer } from '../recording.ts'
import { answerChart, ask, drawn, label, lastAndMost } from '../model/served.ts'
import { num, value } from '../model/format.ts'
import { lineColour } from '../model/colour.ts'
import { text as words, useKept } from './address.ts'
import { Chart, Swatch } from './chart.tsx'
import { useColour } from './theme.ts'

const examples = [
  'sum by (component) (rate(process_cpu_seconds_total[20s]))',
  'sum by (verb, resource) (rate(apiserver_request_total[20s]))',
  'histogram_quantile(0.99, sum by (le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[30s])))',
  'sum by (name) (workqueue_depth)',
]
const few = 20

export function Query({ of, note }: { of: readonly string[]; note: string }) {
  const [text, setText] = useKept('expr', '', words)
  const [answer, setAnswer] = useState<Answer | null>(null)
  const [problem, setProblem] = useState('')
  const [asking, setAsking] = useState(false)
  const [all, setAll] = useState(false)
  const turn = useRef(0)
  const colour = useColour()
  const run = async (expr: string) => {
    const mine = ++turn.current
    setAsking(true)
    setProblem('')
    try {
      const a = await ask<Answer>('/api/query', [['expr', expr], ...of.map((n) => ['of', n] as const)])
      if (mine === turn.current) setAnswer(a)
    } catch (err) {
      if (mine !== turn.current) return
      setAnswer(null)
      setProblem(err instanceof Error ? err.message : String(err))
    } finally {
      if (mine === turn.current) setAsking(false)
    }
  }
  const data = useMemo(() => answer && answerChart(answer.lines, ''), [answer])
  const lines = answer?.lines.filter((l) => l.values.length > 0 || !l.note) ?? []
  const failed = answer?.lines.filter((l) => l.values.length === 0 && l.note) ?? []
  const several = new Set(lines.map((l) => l.of)).size > 1
  return (
    <div class="query">
      <form class="controls" onSubmit={(e) => { e.preventDefault(); if (text.trim()) void run(text) }}>
        <label class="wide">PromQL <input type="text" spellcheck={false} autocomplete="off" list="promql-examples" value={text} onInput={(e) => setText(e.currentTarget.value)} placeholder={examples[0]} /></label>
        <datalist id="promql-examples">{examples.map((x) => <option key={x} value={x} />)}</datalist>
        <button type="submit" disabled={asking || !text.trim() || of.length === 0}>{asking ? 'asking…' : 'evaluate'}</button>
        <output aria-live="polite">{note}</output>
      </form>
      {problem && <p class="missing" role="alert">{problem}</p>}
      {failed.map((l) => <p class="missing" key={l.of}>{l.of}: {l.note}</p>)}
      {answer && lines.length === 0 && failed.length === 0 && <p class="missing">No series matches.</p>}
      {data && <Chart title="Values" data={data} group="query" height={220} note={lines.length > drawn ? `The first ${drawn} of ${lines.length + (answer?.left ?? 0)} series are drawn.` : 'Seconds since the first pod was asked for.'} />}
      {lines.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="series of the answer">
          <table class="grid">
            <thead><tr>{several && <th scope="col">Recording</th>}<th scope="col">Series</th><th scope="col" class="n">last</th><th scope="col" class="n">most</th></tr></thead>
            <tbody>
              {(all ? lines : lines.slice(0, few)).map((l, i) => {
                const [last, most] = lastAndMost(l.values)
                return <tr key={i}>{several && <td>{l.of}</td>}<th scope="row">{i < drawn && <Swatch colour={colour(lineColour(i))} />} <code>{label(l, false)}</code>{l.note && <small>{l.note}</small>}</th><td class="n">{value(last)}</td><td class="n">{value(most)}</td></tr>
              })}
            </tbody>
          </table>
        </div>
      )}
      {lines.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${num(lines.length)}`}</button>}
      {answer && answer.left > 0 && <p class="note">{answer.left} more series are not shown: sum them up.</p>}
    </div>
  )
}
