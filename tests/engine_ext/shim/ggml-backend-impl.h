#include "ggml-impl.h"
