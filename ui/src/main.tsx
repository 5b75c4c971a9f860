// Reads the data out of the document and draws what they are of.
import { render, type ComponentChild } from 'preact'
import 'uplot/dist/uPlot.min.css'
import './page.css'
import type { Folder, Progress } from './recording.ts'
import { parse, parsePage, unpack } from './model/decode.ts'
import { FolderView } from './views/folder.tsx'
import { PageView } from './views/page.tsx'
import { ProgressView } from './views/progress.tsx'

const views: Record<string, (json: string) => ComponentChild> = {
  report: (json) => <PageView page={parsePage(json)} />,
  folder: (json) => <FolderView folder={parse<Folder>(json)} />,
  progress: (json) => <ProgressView first={parse<Progress>(json)} />,
}

async function start(): Promise<void> {
  const data = document.getElementById('data')!
  const at = document.getElementById('page')!
  try {
    const kind = data.dataset['kind'] ?? ''
    const view = views[kind]
    if (!view) throw new Error(`nothing draws ${kind}`)
    const drawn = view(await unpack(data.textContent ?? '', data.dataset['encoding'] ?? 'json'))
    at.replaceChildren()
    render(drawn, at)
    performance.mark('ready') // tests ask how long it took
    document.documentElement.dataset['ready'] = 'true'
  } catch (err) {
    at.textContent = `This report cannot be shown: ${err instanceof Error ? err.message : String(err)}`
    document.documentElement.dataset['ready'] = 'failed'
  }
}
void start()
