#include <time.h>
#include <math.h>
#include <string.h>
#include <stdio.h>
#include "base/clock.h"
#include "base/settings.h"
#include "comm/recorder.h"
#include "topo/topo.h"
#include "collectives/schedule.h"
#include <gyre/types.h>
base_time_t base_now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1000000000LL+t.tv_nsec;}
base_time_t base_deadline(double s){return s<=0?BASE_TIME_NEVER:base_now()+(base_time_t)(s*1e9);}
int base_poll_ms(base_time_t d){if(d==BASE_TIME_NEVER)return -1;base_time_t n=d-base_now();return n<=0?0:(int)((n+999999)/1000000);}
const char*base_setting_string(base_setting_t i){(void)i;return "";}
size_t comm_recorder_bytes(int n){return (size_t)n*sizeof(comm_recorder_slot_t);}
gyre_status_t topo_load(const char*x,topo_t**o){(void)x;*o=(topo_t*)1;return GYRE_OK;}
void topo_free(topo_t*t){(void)t;}
gyre_status_t topo_bind_plan(const topo_t*t,topo_bind_t h,int n,int*c){(void)t;(void)h;for(int i=0;i<n;i++)c[i]=i;return 0;}
gyre_status_t topo_bind_self(const topo_t*t,topo_bind_t h,int c,char*x,size_t n){(void)t;(void)h;if(x)snprintf(x,n,"core %d",c);return 0;}
int topo_bind_parse(const char*w,topo_bind_t*o){static const char*k[]={"none","core","l3","numa"};for(int i=0;i<4;i++)if(!strcmp(w,k[i])){*o=(topo_bind_t)i;return 1;}return 0;}
const char*gyre_last_error(void){return "";}
const char*coll_op_name(coll_op_t o){(void)o;return "op";}
const char*gyre_type_name(gyre_type_t o){(void)o;return "type";}
const char*gyre_redop_name(gyre_redop_kind_t o){(void)o;return "redop";}
