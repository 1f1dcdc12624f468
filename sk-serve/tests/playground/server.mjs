// The server under test. It can be killed and started again at the same port.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

export class Server {
  port = 0;

  // If `key` is not empty, the server requires it. `options` are further ones of `serve`.
  constructor(program, { key = '', options = [] } = {}) {
    this.program = program;
    this.options = options;
    this.environment = { ...process.env, SWISS_KNIFE_SERVE_KEY: key };
  }

  async start() {
    this.child = spawn(this.program, ['serve', '--port', String(this.port), ...this.options], { env: this.environment, stdio: ['ignore', 'ignore', 'pipe'] });
    const lines = createInterface({ input: this.child.stderr });
    this.origin = await new Promise((resolve, reject) => {
      lines.on('line', (line) => {
        const found = /^listening at (http:\/\/[0-9.]+:([0-9]+))\/v1/.exec(line);
        if (!found) return;
        this.port = Number(found[2]);
        resolve(found[1]);
      });
      this.child.on('exit', (code) => reject(new Error(`the server ended with status ${code}`)));
      this.child.on('error', reject);
    });
  }

  // Stops the process; `go` continues it.
  halt() {
    this.child.kill('SIGSTOP');
  }

  go() {
    this.child.kill('SIGCONT');
  }

  async lose() {
    const gone = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await gone;
  }
}
