int evhtp_synthetic(void) { return 0; }
