"""Serves the model of this folder: POST an NPZ file of its inputs, get one of its outputs. crossreg is not needed."""

import io
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
from jax import export

model = export.deserialize(bytearray(Path("model.stablehlo").read_bytes()))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        inputs = np.load(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = io.BytesIO()
        np.savez(answer, **model.call(*(inputs[name] for name in sorted(inputs))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.getvalue())


HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
