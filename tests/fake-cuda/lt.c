/* A stand-in for cuBLASLt that will not do. What may be defined:
 *   LACKS    it has no cublasLtMatmul
 *   STATUS   what cublasLtCreate returns */
#ifndef STATUS
#define STATUS 0
#endif
#define HAS(NAME) int cublasLt##NAME(void) { return 0; }
int cublasLtCreate(void **out) { *out = 0; return STATUS; }
unsigned long cublasLtGetVersion(void) { return 130100; }
HAS(Destroy)
HAS(MatrixLayoutCreate)
HAS(MatrixLayoutDestroy)
HAS(MatmulDescCreate)
HAS(MatmulDescSetAttribute)
HAS(MatmulDescDestroy)
HAS(MatmulPreferenceCreate)
HAS(MatmulPreferenceSetAttribute)
HAS(MatmulPreferenceDestroy)
HAS(MatmulAlgoGetHeuristic)
#ifndef LACKS
HAS(Matmul)
#endif
