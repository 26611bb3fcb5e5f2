#!/usr/bin/env node
// Runs the server's binary, which npm has installed for this machine.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { constants } from 'node:os';

const platform = `@semel/server-${process.platform}-${process.arch}`;

function binary() {
  if (process.env.SEMEL_BIN) return process.env.SEMEL_BIN;
  try {
    return createRequire(import.meta.url).resolve(`${platform}/semel`);
  } catch {
    console.error(`semel: the package ${platform} is not installed. If npm was told to omit optional dependencies, install it by its name; `
      + 'if there is none for this machine, build the server with cargo and set SEMEL_BIN to it.');
    process.exit(1);
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: 'inherit' });
// A terminal sends its signals to both; what is sent to this process alone is passed on.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('error', error => {
  console.error(`semel: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
