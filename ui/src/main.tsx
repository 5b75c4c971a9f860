// Reads the data out of the document and draws the page.
import { render } from 'preact'
import 'uplot/dist/uPlot.min.css'
import './page.css'
import { parsePage, unpack } from './model/decode.ts'
import { PageView } from './views/page.tsx'

async function start(): Promise<void> {
  const data = document.getElementById('data')!
  const at = document.getElementById('page')!
  try {
    const page = parsePage(await unpack(data.textContent ?? '', data.dataset['encoding'] ?? 'json'))
    at.replaceChildren()
    render(<PageView page={page} />, at)
    document.documentElement.dataset['ready'] = 'true'
  } catch (err) {
    at.textContent = `This report cannot be shown: ${err instanceof Error ? err.message : String(err)}`
    document.documentElement.dataset['ready'] = 'failed'
  }
}
void start()
