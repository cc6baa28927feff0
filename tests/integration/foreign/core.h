#pragma once

extern "C" {
__attribute__((visibility("default"))) int FOREIGN_Nodes();
__attribute__((visibility("default"))) const char* FOREIGN_Load(const char* path);
__attribute__((visibility("default"))) int internal();
}
