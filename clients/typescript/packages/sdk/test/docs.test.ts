import assert from 'node:assert/strict';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { openSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { test } from 'node:test';
import { TestServer } from '../src/testing.js';

const ROOT = fileURLToPath(new URL('../../../../../../', import.meta.url));
const BLOCK = /(?:<!-- (?<note>[^>]*) -->\n)?```(?<kind>\w*)\n(?<text>.*?)```|<!-- kill (?<killed>\w+) -->/gs;
const run = promisify(execFile);

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

async function ended(process: ChildProcess): Promise<void> {
  process.kill('SIGKILL');
  if (process.exitCode === null && process.signalCode === null) await once(process, 'exit');
}

/** Executes a page: commands in their order, those noted as `background` beside the others, and compares what they print. */
async function play(page: string, folder: string): Promise<void> {
  await symlink(ROOT, join(folder, 'semel'));
  const listen = `127.0.0.1:${await freePort()}`;
  const path = [dirname(process.env['SEMEL_BIN']!), process.env['PATH']].join(delimiter);
  const options = { cwd: folder, env: { ...process.env, PATH: path, SEMEL_URL: `http://${listen}` } };
  const beside = new Map<string, ChildProcess>();
  let printed = '';
  try {
    const text = readFileSync(join(ROOT, 'docs', page), 'utf8').replace('\nsemel dev\n', `\nsemel dev --listen ${listen}\n`);
    for (const { groups } of text.matchAll(BLOCK)) {
      const { note, kind, text: block, killed } = groups!;
      const [how, name, sign] = (note ?? '').split(' ');
      if (killed !== undefined) await ended(beside.get(killed)!);
      else if (kind === 'sh' && how === 'background') {
        const file = join(folder, `${name}.log`), log = openSync(file, 'w');
        beside.set(name!, spawn('bash', ['-ec', `exec ${block!.trim()}`], { ...options, stdio: ['ignore', log, log] }));
        while (!readFileSync(file, 'utf8').includes(sign!)) {
          assert.equal(beside.get(name!)!.exitCode, null, readFileSync(file, 'utf8'));
          await new Promise(resolve => setImmediate(resolve));
        }
      } else if (kind === 'sh' && note !== 'not here') printed = (await run('bash', ['-ec', block!], options)).stdout;
      else if (kind === 'text') assert.equal(printed, block);
    }
  } finally {
    for (const one of beside.values()) await ended(one);
  }
}

test('the page of TypeScript', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'semel-docs-'));
  await play('typescript.md', folder);
  await rm(folder, { recursive: true, force: true });
});

test('the order example', async () => {
  await using server = await TestServer.start();
  const example = join(ROOT, 'clients/typescript/examples/dist/order.js');
  const { stdout } = await run('node', [example], { env: { ...process.env, SEMEL_URL: server.url, DATABASE_URL: process.env['SEMEL_TEST_POSTGRES'] } });
  const [result, verdict] = stdout.trim().split('\n');
  const { balance, ...rest } = JSON.parse(result!) as { balance: number };
  assert.equal(typeof balance, 'number');
  assert.deepEqual(rest, { charge: '1999 cents', letter: 'letter for 7', rate: 0.94, by: 'Ada', left: 'ink shipped', right: 'pens shipped', total: 300 });
  assert.equal(verdict, 'replayed');
});
