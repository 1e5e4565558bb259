"""Serves the model of this folder: POST an NPZ file of its inputs, get one of its outputs. crossreg is not needed."""

import io
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from jax import export

model = export.deserialize(bytearray(np.fromfile("model.stablehlo", np.uint8)))


class Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds that a client may let its connection wait

    def do_POST(self):
        inputs = np.load(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = io.BytesIO()
        np.savez(answer, **model.call(*(inputs[name] for name in sorted(inputs))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.getvalue())


ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
