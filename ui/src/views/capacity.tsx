// A capacity: what was tried, where the knee is, and the ladder of cores.
import type { Carried, CarriedAt, Climbed, Tried, Wanted } from '../recording.ts'
import { num, percent, value } from '../model/format.ts'
import { between, scale, tightest, type Scale } from '../model/plot.ts'
import { across, Cell, Columns, Figure, height, Levels, pad, up, Upright, Warnings, width } from './plot.tsx'

export function CapacityView({ c }: { c: Carried }) {
  return (
    <>
      {c.at.map((at, i) => (
        <section key={i} aria-label={title(at)}>
          <h2>{title(at)}</h2>
          {c.at.length > 1 && <p>{at.verdict}</p>}
          {!at.sure && at.beyond === 0 && <p class="note warn">The interval is wider than was asked for: more runs make it shorter.</p>}
          {at.binds && <p class="small"><b>At the edge</b> {at.binds}</p>}
          {c.saturated ? <Saturated c={c} at={at} /> : c.objectives.map((o, j) => <Knee key={o.name} c={c} at={at} o={o} of={j} />)}
          <Probes c={c} at={at} />
          <Demands at={at} />
        </section>
      ))}
      {c.ladder && <Ladder c={c} l={c.ladder} />}
      <Warnings of={c.warnings} />
    </>
  )
}

const many = (cores: number): string => `${num(cores)} ${cores === 1 ? 'core' : 'cores'}`
const title = (at: CarriedAt): string => (at.cores > 0 ? `With ${many(at.cores)}` : 'What was tried')
const named = (text: string, at: CarriedAt): string => (at.cores > 0 ? `${text}, with ${many(at.cores)}` : text)
const verdict = (p: Tried): string => (!p.valid ? 'not valid' : p.passed ? 'carried' : 'missed')
const tones: Record<string, string> = { 'not valid': 'warn', carried: 'good', missed: 'bad' }

/** One run: a disc that was carried, a cross that was not, a ring that does not count. */
function Dot({ x, y, p, text }: { x: number; y: number; p: Tried; text: string }) {
  const v = verdict(p)
  return (
    <g class={`probe ${tones[v]}`}>
      {v === 'missed' ? <path d={`M${x - 4} ${y - 4}l8 8m0 -8l-8 8`} /> : <circle cx={x} cy={y} r={4} class={v === 'carried' ? 'full' : 'ring'} />}
      <title>{text}</title>
    </g>
  )
}

const Legend = () => (
  <p class="note kinds"><span><b class="good">●</b> carried</span><span><b class="bad">×</b> an objective was missed</span><span><b class="warn">○</b> not valid, does not count</span></p>
)

function Knee({ c, at, o, of }: { c: Carried; at: CarriedAt; o: Wanted; of: number }) {
  const x = scale([...at.probes.map((p) => p.load), at.capacity.low, at.capacity.high])
  const y = scale([...at.probes.map((p) => p.values[of]), o.limit], true)
  const knee = at.capacity.value
  return (
    <Figure title={named(o.text, at)} unit={`${o.unit === '1' ? '' : o.unit === '1/s' ? 'a second ' : `${o.unit} `}over ${c.find}, ${c.unit}`}
      says={`${o.name} of ${at.probes.length} runs over ${c.find}; ${at.verdict} The table below holds the same data`} after={of === c.objectives.length - 1 && <Legend />}>
      <Columns s={x} /><Levels s={y} />
      {knee !== null && at.capacity.low !== null && <rect x={across(x, at.capacity.low)} width={Math.max(1, across(x, at.capacity.high ?? x.high) - across(x, at.capacity.low))} y={pad.top} height={height - pad.top - pad.bottom} class="band-of" />}
      {knee !== null && <line x1={across(x, knee)} x2={across(x, knee)} y1={pad.top} y2={height - pad.bottom} class="knee" />}
      {knee !== null && <Beside x={across(x, knee)} y={pad.top - 4}>{`half of the runs carry ${num(knee)} ${c.unit}`}</Beside>}
      <line x1={pad.left} x2={width - pad.right} y1={up(y, o.limit)} y2={up(y, o.limit)} class="limit" />
      <text x={pad.left + 4} y={up(y, o.limit) - 5} class="limit-text">{`limit ${num(o.limit)}${o.unit === '1' ? '' : o.unit === '1/s' ? '/s' : ` ${o.unit}`}`}</text>
      {at.probes.map((p, i) => p.values[of] !== null && p.values[of] !== undefined && <Dot key={i} x={across(x, p.load)} y={up(y, p.values[of]!)} p={p} text={`${num(p.load)} ${c.unit}: ${num(p.values[of]!)} ${o.unit}, ${verdict(p)}`} />)}
    </Figure>
  )
}

/** A text beside a line, on the side that has room. */
function Beside({ x, y, children }: { x: number; y: number; children: string }) {
  const right = x < width * 0.6
  return <text x={right ? x + 6 : x - 6} y={y} text-anchor={right ? 'start' : 'end'} class="strong">{children}</text>
}

function Saturated({ c, at }: { c: Carried; at: CarriedAt }) {
  const y = scale([...at.probes.map((p) => p.rate), at.capacity.low, at.capacity.high], true)
  const n = at.probes.length
  const x = (i: number) => pad.left + ((i + 0.5) / n) * (width - pad.left - pad.right)
  return (
    <Figure title={named('Pods that came, run by run', at)} unit={c.unit} says={`${n} runs; ${at.verdict} The table below holds the same data`} after={<Legend />}>
      <Levels s={y} />
      {at.capacity.low !== null && at.capacity.high !== null && <rect x={pad.left} width={width - pad.left - pad.right} y={up(y, at.capacity.high)} height={Math.max(1, up(y, at.capacity.low) - up(y, at.capacity.high))} class="band-of" />}
      {at.capacity.value !== null && <line x1={pad.left} x2={width - pad.right} y1={up(y, at.capacity.value)} y2={up(y, at.capacity.value)} class="knee" />}
      {at.probes.map((p, i) => <Dot key={i} x={x(i)} y={up(y, p.rate)} p={p} text={`run ${i + 1}: ${num(p.rate)} ${c.unit}, ${verdict(p)}`} />)}
    </Figure>
  )
}

function Probes({ c, at }: { c: Carried; at: CarriedAt }) {
  return (
    <details class="data">
      <summary>Runs ({at.probes.length})</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={`runs: ${title(at)}`}>
        <table class="grid">
          <thead><tr>{!c.saturated && <th scope="col" class="n">{c.find}, {c.unit}</th>}<th scope="col">Verdict</th><th scope="col" class="n">came, pods/s</th>{c.objectives.map((o) => <th scope="col" class="n" key={o.name}>{o.name}{o.unit !== '1' && `, ${o.unit}`}<small>{o.text}</small></th>)}<th scope="col">Why</th></tr></thead>
          <tbody>{at.probes.map((p, i) => <tr key={i}>{!c.saturated && <td class="n">{num(p.load)}</td>}<td class={tones[verdict(p)]}>{verdict(p)}</td><td class="n">{num(p.rate)}</td>{c.objectives.map((o, j) => <td class="n" key={o.name}>{value(p.values[j])}</td>)}<td>{p.why}</td></tr>)}</tbody>
        </table>
      </div>
    </details>
  )
}

function Demands({ at }: { at: CarriedAt }) {
  const rows = tightest(at)
  if (rows.length === 0) return null
  const most = Math.max(...rows.map((d) => d.bound.value ?? 0))
  return (
    <>
      <h3>What a pod takes, in the runs at the edge</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={`demands: ${title(at)}`}>
        <table class="grid">
          <thead><tr><th scope="col">Resource, the tightest first</th><th scope="col" class="n">a pod</th><th scope="col" class="n">carries at most, pods/s</th><th scope="col">beside each other</th></tr></thead>
          <tbody>
            {rows.map((d) => {
              const seconds = d.unit === 's/pod'
              return (
                <tr key={d.name}>
                  <th scope="row">{d.name}</th>
                  <Cell e={d.each} say={(x) => (seconds ? `${num(1000 * x)} ms` : `${num(x)} ${x === 1 ? 'request' : 'requests'}`)} />
                  <Cell e={d.bound} />
                  <td><svg class="strip" viewBox="0 0 120 14" width={120} height={14} role="img" aria-label={`${value(d.bound.value)} of ${num(most)} pods/s`}><rect x={0} y={3} height={8} width={Math.max(1, 120 * ((d.bound.value ?? 0) / most))} class="bar" /></svg></td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
    </>
  )
}

const rungs = 240

function Ladder({ c, l }: { c: Carried; l: Climbed }) {
  const measured = c.at.filter((a) => a.cores > 0 && a.capacity.value !== null)
  const x = scale([0, ...l.rungs.map((r) => r.cores), ...measured.map((a) => a.cores)], true)
  const y: Scale = scale([...l.rungs.flatMap((r) => [r.rate.value, r.rate.high]), ...measured.flatMap((a) => [a.capacity.value, a.capacity.high])], true)
  return (
    <section aria-label="Other numbers of cores">
      <h2>Other numbers of cores: computed, not measured</h2>
      <p class="small">{l.text}</p>
      <Figure title="Capacity over cores" unit="pods/s over cores of the control plane" height={rungs} says={`${l.rungs.map((r) => `${num(r.cores)} cores ${value(r.rate.value)} pods/s`).join('; ')}; the table below holds the same data`}
        after={<p class="note kinds"><span><b class="hollow-mark">○</b> computed, with the interval of another run there</span><span><b class="good">●</b> measured</span></p>}>
        <Columns s={x} h={rungs} /><Levels s={y} h={rungs} />
        <path class="line" d={l.rungs.filter((r) => r.rate.value !== null).map((r, i) => `${i ? 'L' : 'M'}${across(x, r.cores)} ${up(y, r.rate.value!, rungs)}`).join('')} />
        {l.rungs.map((r, i) => (
          <g key={i} class="computed">
            <Upright x={across(x, r.cores)} s={y} e={r.rate} h={rungs} />
            {r.rate.value !== null && <circle cx={across(x, r.cores)} cy={up(y, r.rate.value, rungs)} r={4.5}><title>{`${num(r.cores)} cores: ${num(r.rate.value)} pods/s, computed${r.capped ? `; ${l.next} binds first` : ''}`}</title></circle>}
          </g>
        ))}
        {measured.map((a, i) => (
          <g key={i} class="probe good">
            <Upright x={across(x, a.cores)} s={y} e={a.capacity} h={rungs} />
            <circle cx={across(x, a.cores)} cy={up(y, a.capacity.value!, rungs)} r={4} class="full"><title>{`${num(a.cores)} cores: ${num(a.capacity.value!)}, measured`}</title></circle>
          </g>
        ))}
      </Figure>
      {l.held.map((h, i) => <p class="small" key={i}><b>Held out</b> {num(h.cores)} cores: computed {value(h.computed.value)} pods/s ({between(h.computed, num)}), measured {value(h.measured.value)} ({[between(h.measured, num), `n ${h.measured.n}`].filter(Boolean).join(', ')}){h.error !== null && `: ${h.error > 0 ? '+' : '−'}${percent(Math.abs(h.error))}`}.</p>)}
      <details class="data"><summary>Data</summary><div class="scroll" tabIndex={0} role="region" aria-label="table: capacity over cores"><table class="grid">
        <thead><tr><th scope="col" class="n">cores</th><th scope="col" class="n">pods/s</th><th scope="col">bound</th></tr></thead>
        <tbody>{l.rungs.map((r, i) => <tr key={i}><td class="n">{num(r.cores)}</td><Cell e={r.rate} /><td>{r.capped ? `${l.next} binds first` : 'CPU'}</td></tr>)}</tbody>
      </table></div></details>
    </section>
  )
}
