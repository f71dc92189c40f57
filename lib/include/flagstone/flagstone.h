// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Everything. Start with Writer (save), Checkpoint and RankReader (load), zero.h (partitions).

#include "flagstone/backend.h"
#include "flagstone/checkpoint.h"
#include "flagstone/coordinator.h"
#include "flagstone/dtype.h"
#include "flagstone/export.h"
#include "flagstone/load.h"
#include "flagstone/memory.h"
#include "flagstone/page_cache.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/synth.h"
#include "flagstone/tensor.h"
#include "flagstone/value.h"
#include "flagstone/version.h"
#include "flagstone/writer.h"
#include "flagstone/zero.h"
