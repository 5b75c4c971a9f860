// The page, top to bottom: what happened, what it rests on, then the material.
import { useMemo, useState } from 'preact/hooks'
import type { Page, Round } from '../recording.ts'
import { raceChart, until } from '../model/chart.ts'
import { stageRange, tidy, whole } from '../model/timeline.ts'
import { ranges as inAddress } from '../model/address.ts'
import type { Range } from '../model/flame/tree.ts'
import { firstSentence, moment, percent, value } from '../model/format.ts'
import { goTo, useKept, useSections } from './address.ts'
import { Chart } from './chart.tsx'
import { FlameGraph, type Asked } from './flame.tsx'
import { Functions } from './functions.tsx'
import { Conclusions, Story } from './story.tsx'
import { idle } from '../model/story.ts'
import { Logs } from './logs.tsx'
import { Pods } from './pods.tsx'
import { BlockIO, Claims, Use } from './resources.tsx'
import { Requests } from './requests.tsx'
import { Timeline } from './timeline.tsx'
import { Indicators, Latencies, Stages } from './tables.tsx'
import { Conditions } from './conditions.tsx'
import { CapacityView } from './capacity.tsx'
import { HistoryView } from './history.tsx'
import { OverheadView } from './overhead.tsx'
import { Query } from './query.tsx'
import { SeveralRuns } from './several.tsx'
import { SweepView } from './sweep.tsx'

export function PageView({ page }: { page: Page }) {
  return page.rounds.length > 0 ? <Report page={page} /> : <Over page={page} />
}

/** A page over many runs, none of which it shows. */
function Over({ page }: { page: Page }) {
  return (
    <>
      <header>
        <div class="bar"><span class="brand">kubedyno</span>{page.served.length > 0 && <nav aria-label="Back"><a href="/">all recordings</a></nav>}</div>
        <p class="kicker">{page.title}</p>
        <Verdict text={page.verdict} />
      </header>
      <main>
        {page.sweep ? <SweepView s={page.sweep} /> : page.capacity ? <CapacityView c={page.capacity} /> : page.overhead ? <OverheadView o={page.overhead} />
          : <HistoryView trends={page.history} leftOut={page.leftOut} />}
      </main>
      <Foot page={page} />
    </>
  )
}

/** The first sentence of the verdict large, the others below it. */
function Verdict({ text }: { text: string }) {
  const [first, rest] = firstSentence(text)
  return <><h1>{first}</h1>{rest && <p class="more-verdict">{rest}</p>}</>
}

function Foot({ page }: { page: Page }) {
  return <footer>kubedyno {page.tool} · rendered {moment(page.generated)}{page.served.length === 0 && ' · this file holds all its data and asks no network for anything'}</footer>
}

function Report({ page }: { page: Page }) {
  // Doses stand beside the round that they speak for; they are no step of the story.
  const rounds = useMemo(() => { const r = page.rounds.filter((x) => !x.dose); return r.length ? r : page.rounds }, [page])
  const several = rounds.length > 1
  useSections()
  const [chosen, setRanges] = useKept<readonly (Range | null)[]>('sel', () => rounds.map(() => null), inAddress)
  const ranges = useMemo(() => rounds.map((r, i) => { const x = chosen[i]; return x ? tidy(x, whole(r)) : null }), [rounds, chosen])
  const select = (i: number, range: Range | null) => setRanges((all) => rounds.map((_, j) => (j === i ? range : all[j] ?? null)))
  const showStage = (r: Round, stage: string) => {
    select(rounds.indexOf(r), stageRange(r, stage))
    goTo('time')
  }
  const [asked, setAsked] = useState<Asked | null>(null)
  const ask = (a: Asked) => {
    setAsked({ ...a }) // the same one again is asked anew
    goTo('flame')
  }
  const base = rounds[0]
  const race = useMemo(() => raceChart(page.rounds), [page])
  const loaded = !rounds.every(idle) // else nothing is to be said of pods
  const served = page.served.length > 0
  const parts: readonly (readonly [string, string])[] = [
    ['story', 'Story'], ...(page.several ? [['difference', 'Difference'] as const] : []), ['why', 'Findings'], ...(loaded ? [['waiting', 'Waiting'] as const] : []), ['time', 'Over time'],
    ['flame', 'Flame graph'], ['requests', 'Requests'], ...(loaded ? [['pods', 'Pods'] as const] : []), ...(rounds.some((r) => r.claims.names.length > 0) ? [['claims', 'Claims'] as const] : []), ...(loaded ? [['latency', 'Latencies'] as const] : []), ['use', 'Resources'], ['disk', 'Disk'], ['logs', 'Logs'], ['functions', 'Functions'], ...(served ? [['metrics', 'Metrics'] as const] : []), ['conditions', 'Conditions'],
  ]
  return (
    <>
      <header>
        <div class="bar">
          <span class="brand">kubedyno</span>
          {served && <a href="/">all recordings</a>}
          <nav aria-label="Sections">{parts.map(([id, name]) => <a key={id} href={`#${id}`}>{name}</a>)}</nav>
        </div>
        <p class="kicker">{page.title}{base && <> · {moment(base.recording.started)}</>}</p>
        <Verdict text={page.verdict} />
        {base && <Badges rounds={rounds} />}
      </header>
      <main>
        <section id="story" aria-label="Story">
          <Story rounds={rounds} all={page.rounds} />
          <div class={loaded ? 'two' : ''}>
            {loaded && <Chart title={`Pods ${until(rounds)}${several ? ', all rounds on one axis' : ''}`} data={race} group="race" height={260} endLabels />}
            <Indicators rounds={rounds} />
          </div>
        </section>
        {page.several && <section id="difference"><h2>What differs</h2><SeveralRuns s={page.several} onFunction={ask} /></section>}
        <section id="why"><h2>What it rests on</h2><Conclusions rounds={rounds} onStage={showStage} onFunction={ask} /></section>
        {loaded && <section id="waiting"><h2>Where pods waited</h2><Stages rounds={rounds} /></section>}
        <section id="time"><Timeline rounds={rounds} ranges={ranges} onRange={select} /></section>
        <section id="flame"><h2>Which code used the CPU</h2><FlameGraph rounds={rounds} ranges={ranges} asked={asked} diff={page.several !== null} /></section>
        <section id="requests"><h2>Who asked for what</h2><Requests rounds={rounds} ranges={ranges} /></section>
        {loaded && <section id="pods"><h2>The slowest pods</h2><Pods rounds={rounds} ranges={ranges} /></section>}
        {rounds.some((r) => r.claims.names.length > 0) && <section id="claims"><h2>Volumes</h2><Claims rounds={rounds} ranges={ranges} /></section>}
        {loaded && <section id="latency"><h2>Latencies of all pods</h2><Latencies rounds={rounds} /></section>}
        <section id="use"><h2>How busy resources were</h2><Use rounds={rounds} ranges={ranges} /></section>
        <section id="disk"><h2>How long the disk took</h2><BlockIO rounds={rounds} ranges={ranges} onRange={select} /></section>
        <section id="logs"><h2>What the logs say</h2><Logs rounds={rounds} ranges={ranges} /></section>
        <section id="functions"><h2>Where the CPU went</h2><Functions rounds={rounds} onFunction={ask} /></section>
        {served && <section id="metrics"><h2>Ask the metrics</h2><Query of={page.served} note={page.served.length > 1 ? `of ${page.served.length} recordings` : ''} /></section>}
        <section id="conditions"><h2>Conditions</h2><Conditions rounds={page.rounds} /></section>
      </main>
      <Foot page={page} />
    </>
  )
}

function Badges({ rounds }: { rounds: readonly Round[] }) {
  const base = rounds[0]!
  const assessed = rounds.every((r) => r.assessed)
  const bad = rounds.filter((r) => r.assessed && !r.valid)
  const cost = rounds.filter((r) => r.harness.measured)
  const cpus = base.recording.machine.find((f) => f.label === 'CPUs')
  const warnings = rounds.reduce((n, r) => n + r.warnings.length, 0)
  const counts = [...new Set(rounds.map((r) => r.headline.find((i) => i.id === 'rate')?.n ?? 0))]
  const pods = counts.length === 1 && rounds.length > 1 ? `${rounds.length} × ${counts[0]}` : counts.join(', ')
  return (
    <ul class="badges">
      {!assessed ? <li class="warn">not diagnosed</li>
        : bad.length === 0 ? <li class="good">valid</li>
          : <li class="bad">not valid: {bad.map((r) => r.name).join(', ')}</li>}
      <li>{rounds.every(idle) ? 'no load of pods' : `${pods} pods seen ${until(rounds)}`}{base.recording.nodes > 0 && <> on {base.recording.nodes} {base.recording.simulated ? 'simulated ' : ''}{base.recording.nodes === 1 ? 'node' : 'nodes'}</>}</li>
      <li>Kubernetes {base.recording.kubernetes}{base.recording.profile && <>, profile {base.recording.profile}</>}</li>
      {cpus && <li>{cpus.value} CPUs</li>}
      {warnings > 0 && <li class="warn"><a href="#conditions">{warnings === 1 ? '1 warning' : `${warnings} warnings`}</a></li>}
      {cost.length > 0 ? <li>harness {cost.map((r) => `${value(r.harness.perPodMs, 'ms')}/pod (${percent(r.harness.share)})`).join(' → ')}</li>
        : rounds.every(idle) ? null : <li class="warn">harness cost per pod not measured</li>}
    </ul>
  )
}
