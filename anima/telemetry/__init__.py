"""What a running Anima tells about itself: logs, traces and metrics, never persona text.

A process switches each on at its start, with its name and its environment:

    configure_logs("anima-gateway")                        JSON lines on standard error
    traces = configure_traces("anima-gateway", environ)    spans, if a collector is named
    metrics = configure_metrics("anima-gateway", environ)  metrics, if a collector is named
    runtime = temporal_runtime("anima-gateway", environ)   Temporal's own log and metrics

    client = await connect(interceptors=traces.interceptors, runtime=runtime)
    worker = Worker(client, interceptors=[StepMetrics(metrics, clock), FailureBoundary()], ...)
    app = FastAPI(telemetry={"tracer_provider": traces.provider, "meter_provider": metrics.provider,
                             "logs": False, "operation_spans": False, "auto_configure": False})
    parts = Parts(trace=traces.job_environment, ...)       the trace goes on in the Job
    with traces.attached(environ), traces.span("attempt"): ...     and this is the Job
    headers = traces.headers()                             and so do its calls to the gateway
    traces.shutdown(), metrics.shutdown()                  send what is left

Without ``OTEL_EXPORTER_OTLP_ENDPOINT`` the same calls do nothing, and no OpenTelemetry
SDK is imported.  No provider is made global: libraries that instrument themselves
(an Anthropic client, a web framework) would put prompts into spans.

Workflows use nothing of this; the interceptors see what they do.
"""
