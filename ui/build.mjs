// Bundles the page into static/ (from where Go embeds it), or with --test the
// tests into .test/.
import * as esbuild from 'esbuild'
import { readdir, rm } from 'node:fs/promises'

const shared = { bundle: true, jsx: 'automatic', jsxImportSource: 'preact', logLevel: 'warning' }

if (process.argv.includes('--test')) {
  await rm('.test', { recursive: true, force: true })
  const files = (await readdir('src', { recursive: true })).filter((f) => f.endsWith('.test.ts'))
  await esbuild.build({
    ...shared,
    entryPoints: files.map((f) => 'src/' + f),
    outdir: '.test',
    outbase: 'src',
    outExtension: { '.js': '.mjs' },
    format: 'esm',
    platform: 'node',
    target: 'node20',
  })
} else {
  await esbuild.build({
    ...shared,
    entryPoints: { page: 'src/main.tsx' },
    outdir: 'static',
    // One classic script: a module does not load from file://.
    format: 'iife',
    target: ['chrome109', 'firefox115', 'safari16.4'],
    minify: true,
    legalComments: 'none',
  })
}
