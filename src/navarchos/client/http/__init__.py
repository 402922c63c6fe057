"""HTTP over urllib3: interruptible connections, and bodies that are cheap to read.

This package is the only place that depends on parts of urllib3 and `http.client` that are
not documented for this use. Look here first when one of them changes. It uses:

- `PoolManager.pool_classes_by_scheme` and `HTTPConnectionPool.ConnectionCls`, to give the
  pool our connections (`connections.pool_classes`);
- `HTTPConnection._new_conn`, to connect a socket that another thread can shut down, and
  to measure the look-up of the host's name;
- overrides of `HTTPConnection.connect`, `request`, `send`, `getresponse` and `close`, to
  report to the `RequestContext` of the request and to ask its write fence;
- `HTTPConnection.response_class`, which `http.client` calls with the socket, to create a
  `body_reader.ChunkedResponse`;
- `HTTPResponse.fp`, `chunked` and `isclosed`, to read a chunked body in large pieces.

urllib3's own reader takes a quarter of the time of an event of a watch; therefore chunked
bodies are read below it. The modules above know `navarchos.client.transport` only.
"""
