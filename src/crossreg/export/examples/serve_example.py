"""Serves the model of this folder: POST an NPZ file of its inputs, get one of its outputs. crossreg is not needed."""

import io
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
names = [output.name for output in session.get_outputs()]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        inputs = dict(np.load(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"])))))
        answer = io.BytesIO()
        np.savez(answer, **dict(zip(names, session.run(names, inputs), strict=True)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.getvalue())


HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
