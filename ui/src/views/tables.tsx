// Numbers of all rounds side by side.
import { Fragment } from 'preact'
import type { PageStage, Round } from '../recording.ts'
import { change, percent, value, num } from '../model/format.ts'
import { indicators, latencies, longestWait, placeOfIndicator, waitPerPod } from '../model/story.ts'
import { stageColour } from '../model/colour.ts'
import { Swatch } from './chart.tsx'
import { useColour } from './theme.ts'

export function Indicators({ rounds }: { rounds: readonly Round[] }) {
  const rows = indicators(rounds)
  if (rows.length === 0) return null
  return (
    <div class="scroll" tabIndex={0}>
      <table class="grid">
        <caption>Main numbers{rounds.length > 1 && ' · one run each: no interval'}</caption>
        <thead><tr><th scope="col">Indicator</th>{rounds.map((r, i) => <th scope="col" class="n" key={i}>{r.name}</th>)}</tr></thead>
        <tbody>
          {rows.map((row) => {
            const any = row.cells.find((c) => c)!
            const base = row.cells[0]?.value ?? null
            const ns = new Set(row.cells.map((c) => c?.n ?? 0))
            const n = ns.size === 1 ? any.n : 0
            return (
              <tr key={row.key}>
                <th scope="row"><a href={`#${placeOfIndicator(row.key)}`}>{any.label}</a><small>{any.unit}{n > 0 && `, n ${n}`}</small></th>
                {row.cells.map((c, i) => (
                  <td class="n" key={i} title={c?.note}>
                    {value(c?.value)}
                    <small>{[i > 0 && change(base, c?.value ?? null), n === 0 && c?.n && `n ${c.n}`].filter(Boolean).join(', ')}</small>
                    {c?.note && <small class="warn">{c.note}</small>}
                  </td>
                ))}
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}

export function Stages({ rounds }: { rounds: readonly Round[] }) {
  const colour = useColour()
  const scale = longestWait(rounds)
  const names = [...new Set(rounds.flatMap((r) => r.stages.map((s) => s.name)))]
  if (names.length === 0) return <p class="missing">Not diagnosed: no stage accounting.</p>
  return (
    <>
      <div class="waits">
        {rounds.map((r, i) => (
          <div class="wait" key={i}>
            <span class="who">{r.name}</span>
            <span class="stack" role="img" aria-label={r.stages.filter((s) => s.measured).map((s) => `${s.name} ${num(s.perPod)} s`).join(', ')}>
              {scale > 0 && r.stages.filter((s) => s.measured && s.perPod > 0).map((s) => (
                <i key={s.name} title={`${s.name}: ${num(s.perPod)} s a pod, ${percent(s.share)}`}
                  style={{ width: `${(100 * s.perPod) / scale}%`, background: colour(stageColour(s.name)) }} />
              ))}
            </span>
            <span class="n">{num(waitPerPod(r.stages))} s a pod</span>
          </div>
        ))}
      </div>
      <div class="scroll" tabIndex={0}>
        <table class="grid">
          <thead>
            <tr><th rowSpan={2} scope="col">Stage</th>{rounds.map((r, i) => <th key={i} colSpan={3} scope="colgroup" class="mid">{r.name}</th>)}</tr>
            <tr>{rounds.map((_, i) => <Fragment key={i}><th scope="col" class="n first">wait, s/pod</th><th scope="col" class="n">share</th><th scope="col" class="n">in → out, /s</th></Fragment>)}</tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name}>
                <th scope="row"><Swatch colour={colour(stageColour(name))} /> {name}</th>
                {rounds.map((r, i) => {
                  const s = r.stages.find((x) => x.name === name)
                  if (!s?.measured) return <td class="unmeasured first" colSpan={3} key={i}>not measured{s?.why ? `: ${s.why}` : ''}</td>
                  return <Fragment key={i}><td class="n first">{num(s.perPod)}</td><td class="n">{percent(s.share)}</td><td class="n">{flow(s)}</td></Fragment>
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  )
}

/** Pods arriving and leaving. A Deployment reaches the first stages in one request: no rate, but not unknown. */
function flow(s: PageStage): string {
  if (s.rateIn === null && s.rateOut === null) return '–'
  const whole = ['submit', 'accept', 'controller'].includes(s.name)
  return `${s.rateIn === null && whole ? 'at once' : value(s.rateIn)} → ${value(s.rateOut)}`
}

export function Latencies({ rounds }: { rounds: readonly Round[] }) {
  const rows = latencies(rounds)
  return (
    <div class="scroll" tabIndex={0}>
      <table class="grid">
        <thead>
          <tr><th scope="col">Interval</th><th scope="col">Round</th><th scope="col" class="n">n</th><th scope="col" class="n">mean</th>
            <th scope="col" class="n">p50</th><th scope="col" class="n">p90</th><th scope="col" class="n">p99</th><th scope="col" class="n">max, s</th></tr>
        </thead>
        <tbody>
          {rows.map((row) => row.cells.map((l, i) => (
            <tr key={`${row.key} ${i}`} class={i === 0 ? 'group' : ''}>
              {i === 0 && <th scope="rowgroup" rowSpan={rounds.length}>{row.key}<small>{row.cells.find((c) => c)!.from} → {row.cells.find((c) => c)!.to}</small></th>}
              <td>{rounds[i]!.name}</td>
              {!l || l.n === 0 ? <td colSpan={6} class="unmeasured">no samples</td> : (
                <>
                  <td class="n">{l.n}</td><td class="n">{value(l.mean)}</td><td class="n">{value(l.p50)}</td><td class="n">{value(l.p90)}</td>
                  <td class="n" title={l.p99 === null ? 'no p99 below 100 samples' : undefined}>{value(l.p99)}</td><td class="n">{value(l.max)}</td>
                </>
              )}
            </tr>
          )))}
        </tbody>
      </table>
    </div>
  )
}
