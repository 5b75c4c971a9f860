// What the pages of sweeps, capacities and overheads have in common.
import type { ComponentChildren } from 'preact'
import type { Estimated } from '../recording.ts'
import { between, stands, type Scale } from '../model/plot.ts'
import { num, value } from '../model/format.ts'

export const width = 900
export const height = 220
export const pad = { left: 58, right: 16, top: 14, bottom: 30 }

export const across = (s: Scale, v: number): number => pad.left + stands(s, v) * (width - pad.left - pad.right)
export const up = (s: Scale, v: number, h = height): number => h - pad.bottom - stands(s, v) * (h - pad.top - pad.bottom)

interface Props {
  title: string
  unit: string
  /** What the picture shows, for readers who cannot see it. */
  says: string
  height?: number
  children: ComponentChildren
  after?: ComponentChildren
}

/** A plot with its caption. What stands after it holds the same as a table. */
export function Figure({ title, unit, says, height: h = height, children, after }: Props) {
  return (
    <figure class="chart trend plot">
      <figcaption><span class="title">{title}</span><span class="unit">{unit}</span></figcaption>
      <div class="scroll" tabIndex={0} role="region" aria-label={`plot: ${title}`}>
        <svg viewBox={`0 0 ${width} ${h}`} role="img" aria-label={says}>{children}</svg>
      </div>
      {after}
    </figure>
  )
}

/** Lines across a plot with their values at the left. */
export function Levels({ s, h = height }: { s: Scale; h?: number }) {
  return <>{s.ticks.map((v) => <g key={v}><line x1={pad.left} x2={width - pad.right} y1={up(s, v, h)} y2={up(s, v, h)} class="gridline" /><text x={pad.left - 6} y={up(s, v, h) + 4} text-anchor="end">{num(v)}</text></g>)}</>
}

/** Lines up a plot with their values below. */
export function Columns({ s, h = height }: { s: Scale; h?: number }) {
  return <>{s.ticks.map((v) => <g key={v}><line x1={across(s, v)} x2={across(s, v)} y1={pad.top} y2={h - pad.bottom} class="gridline" /><text x={across(s, v)} y={h - pad.bottom + 16} text-anchor="middle">{num(v)}</text></g>)}</>
}

/** An upright interval, open where it has no end. */
export function Upright({ x, s, e, h = height }: { x: number; s: Scale; e: { low: number | null; high: number | null }; h?: number }) {
  if (e.low === null && e.high === null) return null
  const bottom = e.low === null ? h - pad.bottom : up(s, e.low, h)
  const top = e.high === null ? pad.top : up(s, e.high, h)
  return (
    <>
      <line x1={x} x2={x} y1={bottom} y2={top} class="whisker" />
      {e.low !== null && <line x1={x - 5} x2={x + 5} y1={bottom} y2={bottom} class="whisker" />}
      {e.high !== null && <line x1={x - 5} x2={x + 5} y1={top} y2={top} class="whisker" />}
    </>
  )
}

/** An estimate in a cell: its value, below it the interval and how often it was seen. */
export function Cell({ e, say = num }: { e: Estimated; say?: (x: number) => string }) {
  return <td class="n">{e.value === null ? '–' : say(e.value)}<small>{[between(e, say), e.n > 0 ? `n ${e.n}` : ''].filter(Boolean).join(', ')}</small></td>
}

export function Warnings({ of }: { of: readonly string[] }) {
  return of.length > 0 ? <div class="reasons unknown"><h2>Warnings</h2><ul>{of.map((w, i) => <li key={i}>{w}</li>)}</ul></div> : null
}

export const said = (e: Estimated, unit: string): string => `${value(e.value)} ${unit}`
