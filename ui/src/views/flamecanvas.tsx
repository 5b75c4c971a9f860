// One flame graph on a canvas as high as its window: rows that are scrolled out
// of sight are not drawn, so that neither depth nor number of frames matters.
import type { RefObject } from 'preact'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { hit as boxAt, layout, neighbour, order, depth as depthOf, zoomFor, type Row } from '../model/flame/layout.ts'
import { path, type Found, type Tree } from '../model/flame/tree.ts'
import { inkOn } from '../model/colour.ts'
import { useDark } from './theme.ts'

export const rowHeight = 18
const windowRows = 30
const font = '11px ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace'

/** What a key or a button outside can ask of a graph. */
export interface Control {
  match(step: 1 | -1): void
  zoom(frame: number): void
  /** The rows as they stand, and the frame that they are zoomed to. */
  rows(): { rows: Row[]; width: number }
}

interface Props {
  tree: Tree
  weight: Float64Array
  /** Callers below what they call, as flames stand. */
  up: boolean
  label: string
  fill: (frame: number) => string
  text: (frame: number) => string
  found: Found | null
  /** The frame that the pointer or the keyboard is on. */
  onFrame: (frame: number) => void
  onKey: (key: string, frame: number) => boolean
  control: RefObject<Control | null>
  /** The names from the outermost frame to the one that is zoomed to, to begin with, and who is told of others. */
  zoom?: readonly number[]
  onZoom?: (names: readonly number[]) => void
}

export function FlameCanvas({ tree, weight, up, label, fill, text, found, onFrame, onKey, control, zoom: begin, onZoom }: Props) {
  const dark = useDark()
  const scroller = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [width, setWidth] = useState(0)
  const [zoomed, zoomTo] = useState(() => (begin ? descend(tree, begin) : 0))
  const [picked, setPicked] = useState(zoomed)
  const setZoom = (frame: number) => {
    zoomTo(frame)
    onZoom?.(path(tree, frame).map((f) => tree.name[f]!).filter((n) => n >= 0))
  }
  const over = useRef(-1)
  const before = useRef(tree)
  // What stood in the tree before is looked for in the new one.
  let zoom = zoomed
  let selected = picked
  if (before.current !== tree) {
    zoom = locate(before.current, zoomed, tree)
    selected = locate(before.current, picked, tree)
    before.current = tree
    zoomTo(zoom)
    setPicked(selected)
  }
  const c = useMemo(() => order(tree, weight), [tree, weight])
  const rows = useMemo(() => (width > 0 ? layout(tree, c, weight, zoom, width) : []), [tree, c, weight, zoom, width])
  const height = Math.max(1, rows.length) * rowHeight
  const shown = Math.min(height, windowRows * rowHeight)

  useLayoutEffect(() => {
    const el = scroller.current!
    const fit = () => setWidth(Math.floor(el.clientWidth))
    fit()
    const seen = new ResizeObserver(() => requestAnimationFrame(fit))
    seen.observe(el)
    return () => seen.disconnect()
  }, [])

  const paint = () => {
    const el = canvas.current!
    const ratio = devicePixelRatio || 1
    const w = Math.round(width * ratio)
    const h = Math.round(shown * ratio)
    if (el.width !== w || el.height !== h) {
      el.width = w
      el.height = h
    }
    const ctx = el.getContext('2d')!
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    const css = getComputedStyle(document.documentElement)
    draw(ctx, {
      rows, width, height: shown, top: scroller.current!.scrollTop, up, fill, text, selected, over: over.current, found: found?.hit ?? null,
      ink: dark ? '#f2f5f8' : '#14181d', paper: css.getPropertyValue('--paper').trim(), muted: css.getPropertyValue('--muted').trim(),
      accent: dark ? '#ffffff' : '#000000', match: dark ? '#ffd34d' : '#b3261e',
    })
  }
  useLayoutEffect(paint)
  // Flames begin at the bottom, where their roots are.
  const drawn = width > 0
  useLayoutEffect(() => { if (up) scroller.current!.scrollTop = height }, [up, tree, drawn])
  useLayoutEffect(() => { if (!up) scroller.current!.scrollTop = 0 }, [up])

  const show = (frame: number) => {
    const el = scroller.current!
    const d = depthOf(tree, frame)
    const y = (up ? rows.length - 1 - d : d) * rowHeight
    if (y < el.scrollTop) el.scrollTop = Math.max(0, y - rowHeight)
    else if (y + rowHeight > el.scrollTop + shown) el.scrollTop = y + 2 * rowHeight - shown
  }
  const select = (frame: number) => {
    setPicked(frame)
    onFrame(frame)
    const z = zoomFor(tree, weight, frame, width, 4)
    // Zoomed past it, or it is too narrow to be seen.
    if (!path(tree, frame).includes(zoom) && zoom !== 0 || z !== 0 && depthOf(tree, z) > depthOf(tree, zoom)) setZoom(z)
    requestAnimationFrame(() => show(frame))
  }
  const goto = (frame: number) => {
    setZoom(frame)
    setPicked(frame)
    onFrame(frame)
  }
  const at = (e: MouseEvent): number => {
    const box = canvas.current!.getBoundingClientRect()
    const line = Math.floor((e.clientY - box.top + scroller.current!.scrollTop) / rowHeight)
    const r = rows[up ? rows.length - 1 - line : line]
    const i = boxAt(r, e.clientX - box.left)
    return i < 0 ? -1 : r!.frame[i]!
  }
  const step = (by: 1 | -1) => {
    if (!found || found.frames === 0) return
    // The heaviest first: of hundreds of matches those are worth a look.
    const all = found.outermost.toSorted((a, b) => weight[b]! - weight[a]! || a - b)
    const now = all.indexOf(selected)
    select(all[now < 0 ? (by > 0 ? 0 : all.length - 1) : (now + by + all.length) % all.length]!)
  }
  control.current = { match: step, zoom: goto, rows: () => ({ rows, width }) }

  const key = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return
    const inwards = up ? 'ArrowUp' : 'ArrowDown'
    const outwards = up ? 'ArrowDown' : 'ArrowUp'
    if (e.key === inwards) select(neighbour(tree, c, selected, 'callee'))
    else if (e.key === outwards) select(neighbour(tree, c, selected, 'caller'))
    else if (e.key === 'ArrowLeft') select(neighbour(tree, c, selected, 'left'))
    else if (e.key === 'ArrowRight') select(neighbour(tree, c, selected, 'right'))
    else if (e.key === 'Home') select(0)
    else if (e.key === 'Enter' || e.key === '+') goto(selected)
    else if (e.key === '-') goto(Math.max(0, tree.parent[zoom]!))
    else if (e.key === '0' || e.key === 'Escape') setZoom(0)
    else if (e.key === 'n') step(1)
    else if (e.key === 'N') step(-1)
    else if (!onKey(e.key, selected)) return
    e.preventDefault()
  }
  return (
    <div class="flame" ref={scroller} tabIndex={0} role="application" aria-label={label} aria-describedby="flame-keys"
      style={{ height: `${shown}px` }} onScroll={paint} onKeyDown={key}>
      <div style={{ height: `${height}px` }}>
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${shown}px` }}
          onMouseMove={(e) => { const f = at(e); if (f !== over.current) { over.current = f; paint(); if (f >= 0) onFrame(f) } }}
          onMouseLeave={() => { over.current = -1; paint(); onFrame(selected) }}
          onClick={(e) => { const f = at(e); if (f >= 0) goto(f) }} />
      </div>
    </div>
  )
}

/** The frame of another tree with the same stack, or as much of it as there is. */
const locate = (from: Tree, frame: number, to: Tree): number =>
  descend(to, frame < from.name.length ? path(from, frame).map((f) => from.name[f]!) : [])

/** The frame below which these names lead, or as much of the way as there is. */
function descend(t: Tree, names: readonly number[]): number {
  let at = 0
  for (const name of names) {
    if (name < 0) continue
    let next = -1
    for (let i = at + 1; i < t.name.length; i++) if (t.parent[i] === at && t.name[i] === name) { next = i; break }
    if (next < 0) break
    at = next
  }
  return at
}

interface Picture {
  rows: readonly Row[]
  width: number
  height: number
  top: number
  up: boolean
  fill: (frame: number) => string
  text: (frame: number) => string
  selected: number
  over: number
  found: Uint8Array | null
  ink: string
  paper: string
  muted: string
  accent: string
  match: string
}

/** Draws the rows that are in sight and tells how many boxes that were. */
export function draw(ctx: CanvasRenderingContext2D, p: Picture): number {
  ctx.clearRect(0, 0, p.width, p.height)
  ctx.font = font
  ctx.textBaseline = 'middle'
  const letter = ctx.measureText('M').width
  const n = p.rows.length
  const first = Math.floor(p.top / rowHeight)
  const last = Math.min(n - 1, Math.ceil((p.top + p.height) / rowHeight))
  let boxes = 0
  for (let line = first; line <= last; line++) {
    const r = p.rows[p.up ? n - 1 - line : line]!
    const y = line * rowHeight - p.top
    boxes += r.x.length
    for (let i = 0; i < r.x.length; i++) {
      const f = r.frame[i]!
      const w = r.w[i]!
      ctx.globalAlpha = f < 0 ? 0.35 : p.found && !p.found[f] ? 0.4 : 1
      ctx.fillStyle = f < 0 ? p.muted : p.fill(f)
      ctx.fillRect(r.x[i]!, y, w > 3 ? w - 0.5 : w, rowHeight - 1)
    }
    ctx.globalAlpha = 1
    for (let i = 0; i < r.x.length; i++) {
      const f = r.frame[i]!
      const x = Math.max(0, r.x[i]!)
      const letters = Math.floor((r.w[i]! - 6) / letter)
      if (f < 0 || letters < 3) continue
      const t = p.text(f)
      const faded = p.found && !p.found[f]
      if (faded) ctx.globalAlpha = 0.55
      ctx.fillStyle = faded ? p.ink : inkOn(p.fill(f))
      ctx.fillText(t.length > letters ? t.slice(0, letters - 1) + '…' : t, x + 3, y + rowHeight / 2)
      ctx.globalAlpha = 1
    }
    for (let i = 0; i < r.x.length; i++) {
      const f = r.frame[i]!
      if (f < 0) continue
      const mark = f === p.selected ? p.accent : f === p.over ? p.muted : p.found?.[f] && r.w[i]! > 3 ? p.match : ''
      if (!mark) continue
      ctx.strokeStyle = mark
      ctx.lineWidth = f === p.selected ? 2 : 1
      ctx.strokeRect(r.x[i]! + 1, y + 1, Math.max(1, r.w[i]! - 2.5), rowHeight - 3)
    }
  }
  return boxes
}
