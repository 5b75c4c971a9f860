// A run that is still being recorded: how far it is, and its curves as they grow.
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Progress } from '../recording.ts'
import { curveChart } from '../model/chart.ts'
import { address, ask } from '../model/served.ts'
import { duration, num } from '../model/format.ts'
import { Chart } from './chart.tsx'

const again = 1000

export function ProgressView({ first }: { first: Progress }) {
  const [p, setP] = useState(first)
  const [gone, setGone] = useState('')
  const name = first.entry.name
  const running = p.entry.status === 'running'
  useEffect(() => {
    if (!running) return
    const timer = setInterval(() => {
      if (document.hidden) return
      ask<Progress>('/api/progress', [['of', name]]).then((x) => { setP(x); setGone('') }, (err: Error) => setGone(err.message))
    }, again)
    return () => clearInterval(timer)
  }, [name, running])
  const data = useMemo(() => curveChart(p.curves), [p])
  const all = Math.max(p.entry.pods, p.created)
  const part = all > 0 ? p.running / all : 0
  const rate = recent(p)
  return (
    <>
      <header>
        <div class="bar"><span class="brand">kubedyno</span><nav aria-label="Back"><a href="/">all recordings</a></nav></div>
        <p class="kicker">{p.entry.experiment} · {p.entry.machine}</p>
        <h1>{running ? `${name} is being recorded` : <>{name}: {p.entry.status}</>}</h1>
        <ul class="badges">
          <li>{duration(Math.round(p.now))} since its start</li>
          {p.phase && running && <li class="good">phase {p.phase}</li>}
          {p.gaps > 0 && <li class="warn">{p.gaps === 1 ? '1 thing' : `${p.gaps} things`} not recorded</li>}
        </ul>
      </header>
      <main>
        {gone && <p class="missing" role="alert">{gone}</p>}
        {!running && <p class="nothing">The recording is over. <a href={address('/report', [['of', name]])}>Open its report</a></p>}
        <section aria-label="Progress">
          <p class="big" aria-live="off">{num(p.running)} <span>of {num(all)} pods running{rate !== null && <>, {num(rate)} a second lately</>}</span></p>
          <div class="meter" role="progressbar" aria-label="pods running" aria-valuemin={0} aria-valuemax={all} aria-valuenow={p.running}><i style={{ width: `${100 * part}%` }} /></div>
          <Chart title="Created, scheduled, running" data={data} group="progress" height={320} note="Seconds since the recording began. What pods waited for is told when the run is over." />
          <div class="scroll" tabIndex={0} role="region" aria-label="phases"><table class="grid phases">
            <caption>Phases</caption>
            <thead><tr><th scope="col">Phase</th><th scope="col">Kind</th><th scope="col" class="n">from</th><th scope="col" class="n">took</th></tr></thead>
            <tbody>{p.phases.map((x, i) => <tr key={i}><th scope="row">{x.name}</th><td>{x.kind}</td><td class="n">{duration(Math.round(x.from))}</td><td class="n">{duration(Math.round(x.to - x.from))}</td></tr>)}</tbody>
          </table></div>
        </section>
      </main>
    </>
  )
}

/** Pods that began to run a second, over the last ten; null where none did. */
function recent(p: Progress): number | null {
  const c = p.curves
  const end = Math.min(c.running.length - 1, Math.floor(p.now / c.step))
  const from = Math.max(0, end - Math.round(10 / c.step))
  const d = (c.running[end] ?? 0) - (c.running[from] ?? 0)
  return d > 0 && end > from ? d / ((end - from) * c.step) : null
}
